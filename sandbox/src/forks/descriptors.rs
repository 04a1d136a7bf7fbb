//! Sending open descriptors to another process.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;

/// Descriptors of one message.
const COUNT: usize = 3;

const CONTENT_BYTES: u32 = (COUNT * size_of::<libc::c_int>()) as u32;

/// Room for one control message, aligned as its header has to be.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    bytes: [u8; 64],
}

/// Sends bytes over a socket, and copies of the descriptors with the first of them. Returns how
/// many bytes were taken. See `unix(7)`, `SCM_RIGHTS`.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: [BorrowedFd<'_>; COUNT],
) -> io::Result<usize> {
    let numbers = descriptors.map(|descriptor| descriptor.as_raw_fd());
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control { bytes: [0; 64] };
    #[expect(
        unsafe_code,
        reason = "sendmsg with descriptors has no wrapper in use here"
    )]
    // SAFETY: `message` points to `part` and `control`, which outlive the call, with their sizes.
    // The control message fits: `CMSG_SPACE` of three numbers is 32 bytes. The kernel only reads
    // all of it, `bytes` included, which is why casting its constness away is sound.
    let sent = unsafe {
        let mut message: libc::msghdr = MaybeUninit::zeroed().assume_init();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = libc::CMSG_SPACE(CONTENT_BYTES) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(CONTENT_BYTES) as _;
        std::ptr::copy_nonoverlapping(numbers.as_ptr(), libc::CMSG_DATA(header).cast(), COUNT);
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    let sent = Errno::result(sent)?;
    Ok(usize::try_from(sent).unwrap_or(0))
}
