//! Which paths the private file system holds.
//!
//! A path such as `/lib64/ld-linux.so` works through symbolic links. Each link on the way becomes
//! a link in the view, and what it finally leads to is bound at its real place.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use crate::protocol::ViewEntry;

/// As many links as the kernel follows.
const MAXIMUM_LINKS: usize = 40;

/// Entries for all `paths`, links and parents first. Paths that do not exist are left out.
pub(crate) fn plan<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<ViewEntry> {
    let mut links = Vec::new();
    let mut real_paths = Vec::new();
    for path in paths {
        if let Some((real, found)) = resolve(path) {
            links.extend(found);
            real_paths.push(real);
        }
    }
    real_paths.sort();
    real_paths.dedup_by(|later, earlier| later.starts_with(&*earlier));
    links.sort();
    links.dedup();
    // A link inside a bound directory is there already.
    links.retain(|(at, _)| !real_paths.iter().any(|real| at.starts_with(real)));
    let binds = real_paths.into_iter().map(ViewEntry::Bind);
    let links = links
        .into_iter()
        .map(|(at, target)| ViewEntry::Link { at, target });
    binds.chain(links).collect()
}

type Link = (PathBuf, PathBuf);

/// Follows `path` by hand: its real place and the links on the way.
fn resolve(path: &Path) -> Option<(PathBuf, Vec<Link>)> {
    let mut pending: VecDeque<OsString> = names(path);
    let mut real = PathBuf::from("/");
    let mut links = Vec::new();
    while let Some(name) = pending.pop_front() {
        if name == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        if !next.symlink_metadata().ok()?.is_symlink() {
            real = next;
            continue;
        }
        let target = next.read_link().ok()?;
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        for name in names(&target).into_iter().rev() {
            pending.push_front(name);
        }
        links.push((next, target));
        if links.len() > MAXIMUM_LINKS {
            return None;
        }
    }
    Some((real, links))
}

fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_on_the_way_are_kept_and_loops_left_out() {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("usr/lib/deep")).unwrap();
        symlink("usr/lib", base.join("lib")).unwrap();
        symlink("../lib/deep", base.join("usr/back")).unwrap();
        symlink("loop", base.join("loop")).unwrap();

        let paths = [
            base.join("lib/deep"),
            base.join("usr/back"),
            base.join("loop"),
            base.join("none"),
        ];
        let link = |at: &str, target: &str| ViewEntry::Link {
            at: base.join(at),
            target: PathBuf::from(target),
        };
        assert_eq!(
            plan(&paths),
            [
                ViewEntry::Bind(base.join("usr/lib/deep")),
                link("lib", "usr/lib"),
                link("usr/back", "../lib/deep"),
            ]
        );
    }

    #[test]
    fn a_link_inside_a_bound_directory_is_not_repeated() {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("lib/a")).unwrap();
        symlink("a", base.join("lib/b")).unwrap();
        let paths = [base.join("lib"), base.join("lib/b")];
        assert_eq!(plan(&paths), [ViewEntry::Bind(base.join("lib"))]);
    }
}
