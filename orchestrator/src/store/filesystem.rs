//! Telling local from network file systems, and whether one is full or can't be written.

use std::path::Path;

use nix::sys::statfs::statfs;
use nix::unistd::{AccessFlags, access};

/// Magic numbers of Linux `statfs(2)`.
const NETWORK: [(i64, &str); 7] = [
    (0x6969, "NFS"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x0BD0_0BD0, "Lustre"),
    (0x6573_5546, "FUSE"),
    (0x00C3_6400, "Ceph"),
    (0x5346_414F, "AFS"),
];

/// The network file system `path` lies on, if it does.
pub(super) fn network_kind(path: &Path) -> Option<&'static str> {
    let kind = statfs(path).ok()?.filesystem_type().0;
    NETWORK
        .iter()
        .find(|(magic, _)| *magic == kind)
        .map(|(_, name)| *name)
}

/// Whether no further file can be made beside `path`.
pub(super) fn has_no_room(path: &Path) -> bool {
    let directory = path.parent().unwrap_or(path);
    statfs(directory).is_ok_and(|found| {
        // Some file systems don't count files: they say that there is room for none.
        let is_counted = found.files() > 0;
        found.blocks_available() == 0 || is_counted && found.files_free() == 0
    })
}

/// Whether files can be made in `directory`.
pub(super) fn is_writable(directory: &Path) -> bool {
    access(directory, AccessFlags::W_OK).is_ok()
}
