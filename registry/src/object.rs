//! Objects: harness files as blobs and trees, commits, and what to say when one can't be read. Writing them is
//! the first phase of every write.
//!
//! The index is never used: a stale `index.lock` then does no harm, and no `core.autocrlf` rewrites a file.

use std::collections::BTreeMap;

use git2::{Commit, ObjectType, Oid};

use crate::error::RegistryError;
use crate::id::{CommitId, VersionName};
use crate::message::Message;
use crate::reference::HEAD;
use crate::store::Registry;

/// Mode of a file that a person may edit.
const FILE_MODE: i32 = 0o100_644;
/// Mode of a folder.
const FOLDER_MODE: i32 = 0o040_000;

/// One level of a folder on its way to a tree.
#[derive(Default)]
struct Folder<'a> {
    files: BTreeMap<&'a str, &'a str>,
    folders: BTreeMap<&'a str, Folder<'a>>,
}

impl<'a> Folder<'a> {
    fn insert(&mut self, path: &'a str, text: &'a str) {
        match path.split_once('/') {
            Some((first, rest)) => self.folders.entry(first).or_default().insert(rest, text),
            None => {
                self.files.insert(path, text);
            }
        }
    }

    fn write(&self, registry: &Registry) -> Result<Oid, RegistryError> {
        let fails = RegistryError::git("write the harness's files");
        let mut builder = registry.repository.treebuilder(None).map_err(fails)?;
        let mut entries = Vec::new();
        for (name, text) in &self.files {
            let blob = registry
                .repository
                .blob(text.as_bytes())
                .map_err(RegistryError::git("write a file of the harness"))?;
            entries.push((*name, blob, FILE_MODE));
        }
        for (name, folder) in &self.folders {
            entries.push((*name, folder.write(registry)?, FOLDER_MODE));
        }
        for (name, id, mode) in entries {
            // The name is fine, so what fails is reading the header of an object that was there before.
            builder
                .insert(name, id, mode)
                .map_err(|source| registry.damaged(id, source))?;
        }
        builder
            .write()
            .map_err(RegistryError::git("write a folder of the harness"))
    }
}

impl Registry {
    /// Writes a commit that nothing points to yet.
    pub(crate) fn write_commit(
        &self,
        tree: Oid,
        parent: Option<CommitId>,
        message: &Message,
        unix_seconds: u64,
    ) -> Result<CommitId, RegistryError> {
        let signature = self.author.signature(unix_seconds)?;
        let tree = self
            .repository
            .find_tree(tree)
            .map_err(|source| self.damaged(tree, source))?;
        let parent = parent
            .map(|parent| self.commit_object(parent))
            .transpose()?;
        let parents: Vec<&Commit<'_>> = parent.iter().collect();
        self.repository
            .commit(
                None,
                &signature,
                &signature,
                &message.to_string(),
                &tree,
                &parents,
            )
            .map(CommitId)
            .map_err(RegistryError::git("write a commit"))
    }

    /// Reads a new commit back before anything points to it. libgit2 does not write an object that it believes
    /// to exist, so an older damaged file of the same name would otherwise be published unseen.
    pub(crate) fn read_back(
        &self,
        commit: CommitId,
        files: &BTreeMap<String, String>,
    ) -> Result<(), RegistryError> {
        let found = self.read_files(commit)?;
        for (path, text) in files {
            if found.get(path) != Some(text) {
                return Err(RegistryError::TreeEntry {
                    commit,
                    file: path.clone(),
                    reason: "reads back differently from what was written",
                });
            }
        }
        Ok(())
    }

    /// Writes files as a tree, unreachable until a commit uses it.
    pub(crate) fn write_tree(
        &self,
        files: &BTreeMap<String, String>,
    ) -> Result<Oid, RegistryError> {
        let mut root = Folder::default();
        for (path, text) in files {
            root.insert(path, text);
        }
        root.write(self)
    }

    /// Reads all files of a commit.
    pub(crate) fn read_files(
        &self,
        commit: CommitId,
    ) -> Result<BTreeMap<String, String>, RegistryError> {
        let tree = self.commit_object(commit)?.tree_id();
        let mut files = BTreeMap::new();
        self.read_folder(commit, tree, "", &mut files)?;
        Ok(files)
    }

    fn read_folder(
        &self,
        commit: CommitId,
        tree: Oid,
        prefix: &str,
        files: &mut BTreeMap<String, String>,
    ) -> Result<(), RegistryError> {
        let tree = self
            .repository
            .find_tree(tree)
            .map_err(|source| self.damaged(tree, source))?;
        for entry in &tree {
            let path = format!("{prefix}{}", String::from_utf8_lossy(entry.name_bytes()));
            let fails = |reason| RegistryError::TreeEntry {
                commit,
                file: path.clone(),
                reason,
            };
            match entry.kind() {
                Some(ObjectType::Tree) => {
                    self.read_folder(commit, entry.id(), &format!("{path}/"), files)?;
                }
                // A symbolic link is a blob with a mode of its own.
                Some(ObjectType::Blob) if entry.filemode() & 0o170_000 == 0o100_000 => {
                    let id = entry.id();
                    let blob = self
                        .repository
                        .find_blob(id)
                        .map_err(|source| self.damaged(id, source))?;
                    let text = std::str::from_utf8(blob.content())
                        .map_err(|_| fails("is not UTF-8 text"))?;
                    files.insert(path, text.to_owned());
                }
                _ => return Err(fails("is a link or a submodule")),
            }
        }
        Ok(())
    }

    pub(crate) fn commit_object(&self, id: CommitId) -> Result<Commit<'_>, RegistryError> {
        self.repository
            .find_commit(id.0)
            .map_err(|source| self.damaged(id.0, source))
    }

    /// Names an object that can't be read, and the way out.
    pub(crate) fn damaged(&self, object: Oid, source: git2::Error) -> RegistryError {
        let text = object.to_string();
        let (folder, file) = text.split_at(2);
        let file = self.git_folder().join("objects").join(folder).join(file);
        let folder = self.path.display();
        let recovery = if self.target(HEAD).ok().flatten() == Some(object) {
            match self.last_readable_tag(object) {
                Some(name) => format!(
                    "head points to it: go back to the last readable version with \
                     `git -C '{folder}' update-ref {HEAD} {}` and repeat the write",
                    name.tag_reference()
                ),
                None => "head points to it and no version is readable: restore a backup".to_owned(),
            }
        } else if let Some(reference) = self.reference_to(object) {
            format!(
                "only {reference} points to it: drop that entry with \
                 `git -C '{folder}' update-ref -d {reference}`"
            )
        } else {
            let file = file.display();
            format!(
                "copy `{file}` from a clone or backup; if it was about to be written, remove it and \
                 repeat the write"
            )
        };
        RegistryError::Damaged {
            path: self.path.clone(),
            object: text,
            recovery,
            source,
        }
    }

    fn last_readable_tag(&self, except: Oid) -> Option<VersionName> {
        let tags = self.repository.tag_names(Some("v*")).ok()?;
        let names = tags
            .iter()
            .filter_map(|tag| tag.ok().flatten()?.parse::<VersionName>().ok());
        let is_readable = |name: &VersionName| {
            let target = self.target(&name.tag_reference()).ok().flatten();
            target.is_some_and(|id| id != except && self.repository.find_commit(id).is_ok())
        };
        names.filter(is_readable).max()
    }

    fn reference_to(&self, object: Oid) -> Option<String> {
        let references = self.repository.references_glob("refs/rejected/*").ok()?;
        references
            .flatten()
            .find(|reference| reference.target() == Some(object))
            .and_then(|reference| reference.name().ok().map(str::to_owned))
    }
}
