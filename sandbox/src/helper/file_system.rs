//! The private file system: a small tree in memory that shows what the interpreter needs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chdir, pivot_root};

use super::{At, Failure, program};
use crate::enforcement::Isolation;
use crate::protocol::{Request, ViewEntry};

/// Room for the program's source and the directories in the scratch directory.
const SPARE_BYTES: u64 = 256 << 10;

/// Files and directories that a program may create.
const SCRATCH_FILES: u32 = 1024;

/// Puts the tree together and makes it the root; nothing of the machine's tree stays reachable.
pub(super) fn enter(request: &Request, supervisor: u32) -> Result<(), Failure> {
    let root = &request.setting.mount_point;
    umask(Mode::from_bits_truncate(0o022));
    // Mounts made from here on must not travel back to the machine.
    let everywhere = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(NONE, "/", NONE, everywhere, NONE).at("making mounts private")?;
    mount_memory(root, "mode=0755,size=1m,nr_inodes=4k").at("mounting the private root")?;
    for entry in &request.setting.view {
        match entry {
            ViewEntry::Bind(path) => bind(root, path)?,
            ViewEntry::Link { at, target } => {
                let at = inside(root, at);
                create_parent(&at).at("creating a directory")?;
                symlink(target, at).at("creating a link")?;
            }
        }
    }
    add_scratch(root, request, supervisor).at("mounting the scratch directory")?;
    make_root(root).at("changing the root")
}

const NONE: Option<&str> = None;

fn mount_memory(at: &Path, options: &str) -> Result<(), Errno> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some(options))
}

/// Where a path of the machine appears below the new root.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn create_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

/// Shows a file or directory of the machine read-only, with whatever is mounted below it: container
/// runtimes mount single libraries into `/usr/lib`.
fn bind(root: &Path, path: &Path) -> Result<(), Failure> {
    const STAGE: &str = "showing the interpreter's files";
    let explain = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let at = inside(root, path);
    let create = || -> io::Result<()> {
        if path.is_dir() {
            return fs::create_dir_all(&at);
        }
        create_parent(&at)?;
        File::create(&at).map(drop)
    };
    create().map_err(|error| explain(&error)).at(STAGE)?;
    mount(
        Some(path),
        &at,
        NONE,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        NONE,
    )
    .map_err(|error| explain(&error))
    .at(STAGE)?;
    make_read_only(&at, path.starts_with("/dev"))
        .map_err(|error| explain(&error))
        .at(STAGE)
}

/// Sets mount attributes on a whole tree, which `mount(2)` cannot do.
fn make_read_only(at: &Path, is_device: bool) -> Result<(), Errno> {
    let device = if is_device { 0 } else { libc::MOUNT_ATTR_NODEV };
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | device,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let path = program::c_string(at.as_os_str())?;
    #[expect(unsafe_code, reason = "mount_setattr has no wrapper")]
    // SAFETY: the kernel reads a string and a struct of the given size, which both outlive the
    // call, and writes nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    Errno::result(result).map(drop)
}

/// The writable directory. Its size is the program's disk quota, and it vanishes with the box.
fn add_scratch(root: &Path, request: &Request, supervisor: u32) -> io::Result<()> {
    let at = inside(root, &request.scratch);
    fs::create_dir_all(&at)?;
    mount_scratch(&at, request, supervisor)?;
    // Programs are used to writing there. Only a convenience, as `TMPDIR` says it too: an
    // interpreter that lives below /tmp itself keeps its place.
    match symlink(&request.scratch, root.join("tmp")) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// Puts an empty scratch directory in the place of the one before, inside the private file system.
pub(super) fn renew_scratch(request: &Request, supervisor: u32) -> Result<(), Errno> {
    // Detached, as a mount that is still busy must not be able to stay.
    umount2(&request.scratch, MntFlags::MNT_DETACH)?;
    mount_scratch(&request.scratch, request, supervisor)
}

fn mount_scratch(at: &Path, request: &Request, supervisor: u32) -> Result<(), Errno> {
    let bytes = request.limits.file_bytes + request.purpose.source_bytes() + SPARE_BYTES;
    let owner = match request.setting.isolation {
        Isolation::FreshUser => {
            let user = program::fresh_user_id(supervisor);
            format!(",uid={user},gid={user}")
        }
        // Inside a user namespace there is only one user.
        _ => String::new(),
    };
    let options = format!("mode=0700,size={bytes},nr_inodes={SCRATCH_FILES}{owner}");
    mount_memory(at, &options)
}

/// Swaps the root and lets go of the old one.
fn make_root(root: &Path) -> Result<(), Errno> {
    chdir(root)?;
    // Both in one place: the old root ends up on top of the new one, from where it is taken off.
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")?;
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(
        NONE,
        "/",
        NONE,
        read_only | MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        NONE,
    )
}
