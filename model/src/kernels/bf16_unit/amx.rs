//! The tile unit's instructions (Intel AMX): set-up, and one 32 × 32 block of a product.
//!
//! Only Linux on x86-64 has them here; elsewhere [`request`] says no and nothing else is called.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(super) use absent::{configure, release, request};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(super) use x86::{configure, release, request};

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;

    use super::super::Product;

    /// Ask the system for the tile registers (Linux hands them out on request only).
    pub(in super::super) fn request() -> bool {
        const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_ulong = 18;
        let leaf = __cpuid_count(7, 0);
        let has_unit = leaf.edx >> 24 & 1 == 1 && leaf.edx >> 22 & 1 == 1;
        // SAFETY: asking for a processor feature has no other effect; an error is an answer.
        has_unit
            && unsafe {
                libc::syscall(
                    libc::SYS_arch_prctl,
                    ARCH_REQ_XCOMP_PERM,
                    XFEATURE_XTILEDATA,
                ) == 0
            }
    }

    #[repr(C, align(64))]
    struct Config {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }

    /// All eight tiles sixteen rows of 64 bytes.
    static CONFIG: Config = Config {
        palette: 1,
        start_row: 0,
        reserved: [0; 14],
        row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
        rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
    };

    /// Set this thread's tiles up.
    ///
    /// # Safety
    /// [`request`] said yes.
    pub(in super::super) unsafe fn configure() {
        // SAFETY: the compiler itself never uses tiles, so their set-up is ours.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &CONFIG, options(nostack, readonly)) };
    }

    /// Give the tiles back, so that switching threads need not save them.
    ///
    /// # Safety
    /// [`request`] said yes.
    pub(in super::super) unsafe fn release() {
        // SAFETY: no tile holds anything that is still needed.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }

    /// Tile code: begin the sums, loop over k with `$body`, store the sums.
    macro_rules! tile_loop {
        ($self:ident, $step:literal, [$($body:literal),* $(,)?], $half:ident) => {
            // SAFETY: the caller gives operands and an output of the right size and a configured
            // unit; every register the code writes is declared.
            unsafe {
                asm!(
                    "test {fresh:l}, {fresh:l}",
                    "jnz 2f",
                    "tileloadd tmm0, [{out} + {stride}]",
                    "tileloadd tmm1, [{out} + {stride} + 64]",
                    tile_loop!(@low $half "tileloadd tmm2, [{bottom} + {stride}]"),
                    tile_loop!(@low $half "tileloadd tmm3, [{bottom} + {stride} + 64]"),
                    "jmp 3f",
                    "2:",
                    "tilezero tmm0",
                    "tilezero tmm1",
                    tile_loop!(@low $half "tilezero tmm2"),
                    tile_loop!(@low $half "tilezero tmm3"),
                    "3:",
                    $($body,)*
                    concat!("add {a}, ", $step),
                    concat!("add {b}, ", $step),
                    "dec {count}",
                    "jnz 3b",
                    "tilestored [{out} + {stride}], tmm0",
                    "tilestored [{out} + {stride} + 64], tmm1",
                    tile_loop!(@low $half "tilestored [{bottom} + {stride}], tmm2"),
                    tile_loop!(@low $half "tilestored [{bottom} + {stride} + 64], tmm3"),
                    a = inout(reg) $self.input => _,
                    b = inout(reg) $self.weight => _,
                    count = inout(reg) $self.depth => _,
                    out = in(reg) $self.out,
                    bottom = in(reg) $self.out.cast::<u8>().wrapping_add(16 * $self.stride),
                    stride = in(reg) $self.stride,
                    line = in(reg) 64usize,
                    fresh = in(reg) usize::from($self.is_fresh),
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        };
        (@low whole $code:literal) => { $code };
        (@low half $code:literal) => { "/* {bottom} */" };
    }

    impl Product {
        /// # Safety
        /// The tiles are configured, and operands and output are as large as
        /// [`super::super::Unit::run`] asks.
        pub(in super::super) unsafe fn run_on_tiles(&self) {
            // SAFETY: the caller's.
            unsafe {
                if self.parts == 1 {
                    self.run_one_part();
                } else {
                    self.run_two_parts();
                }
            }
        }

        /// Whether the lower tiles hold nothing.
        fn is_low(&self) -> bool {
            self.height <= 16
        }

        /// Bfloat16 operands.
        ///
        /// # Safety
        /// As for [`Self::run_on_tiles`].
        unsafe fn run_one_part(&self) {
            if self.is_low() {
                tile_loop!(
                    self,
                    "2048",
                    [
                        "tileloadd tmm4, [{a} + {line}]",
                        "tileloadd tmm6, [{b} + {line}]",
                        "tdpbf16ps tmm0, tmm4, tmm6",
                        "tileloadd tmm7, [{b} + {line} + 1024]",
                        "tdpbf16ps tmm1, tmm4, tmm7",
                    ],
                    half
                );
            } else {
                tile_loop!(
                    self,
                    "2048",
                    [
                        "tileloadd tmm4, [{a} + {line}]",
                        "tileloadd tmm6, [{b} + {line}]",
                        "tdpbf16ps tmm0, tmm4, tmm6",
                        "tileloadd tmm7, [{b} + {line} + 1024]",
                        "tdpbf16ps tmm1, tmm4, tmm7",
                        "tileloadd tmm5, [{a} + {line} + 1024]",
                        "tdpbf16ps tmm2, tmm5, tmm6",
                        "tdpbf16ps tmm3, tmm5, tmm7",
                    ],
                    whole
                );
            }
        }

        /// Operands of two parts each.
        ///
        /// # Safety
        /// As for [`Self::run_on_tiles`].
        unsafe fn run_two_parts(&self) {
            if self.is_low() {
                tile_loop!(
                    self,
                    "4096",
                    [
                        "tileloadd tmm4, [{a} + {line}]",
                        "tileloadd tmm6, [{b} + {line}]",
                        "tileloadd tmm7, [{b} + {line} + 1024]",
                        "tdpbf16ps tmm0, tmm4, tmm6",
                        "tdpbf16ps tmm1, tmm4, tmm7",
                        "tileloadd tmm5, [{a} + {line} + 2048]",
                        "tdpbf16ps tmm0, tmm5, tmm6",
                        "tdpbf16ps tmm1, tmm5, tmm7",
                        "tileloadd tmm6, [{b} + {line} + 2048]",
                        "tileloadd tmm7, [{b} + {line} + 3072]",
                        "tdpbf16ps tmm0, tmm4, tmm6",
                        "tdpbf16ps tmm1, tmm4, tmm7",
                    ],
                    half
                );
            } else {
                tile_loop!(
                    self,
                    "4096",
                    [
                        "tileloadd tmm4, [{a} + {line}]",
                        "tileloadd tmm6, [{b} + {line}]",
                        "tdpbf16ps tmm0, tmm4, tmm6",
                        "tileloadd tmm7, [{b} + {line} + 1024]",
                        "tdpbf16ps tmm1, tmm4, tmm7",
                        "tileloadd tmm5, [{a} + {line} + 1024]",
                        "tdpbf16ps tmm2, tmm5, tmm6",
                        "tdpbf16ps tmm3, tmm5, tmm7",
                        "tileloadd tmm4, [{a} + {line} + 2048]",
                        "tdpbf16ps tmm0, tmm4, tmm6",
                        "tdpbf16ps tmm1, tmm4, tmm7",
                        "tileloadd tmm5, [{a} + {line} + 3072]",
                        "tdpbf16ps tmm2, tmm5, tmm6",
                        "tdpbf16ps tmm3, tmm5, tmm7",
                        "tileloadd tmm6, [{b} + {line} + 2048]",
                        "tileloadd tmm4, [{a} + {line}]",
                        "tdpbf16ps tmm0, tmm4, tmm6",
                        "tileloadd tmm7, [{b} + {line} + 3072]",
                        "tdpbf16ps tmm1, tmm4, tmm7",
                        "tileloadd tmm5, [{a} + {line} + 1024]",
                        "tdpbf16ps tmm2, tmm5, tmm6",
                        "tdpbf16ps tmm3, tmm5, tmm7",
                    ],
                    whole
                );
            }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod absent {
    use super::super::Product;

    pub(in super::super) fn request() -> bool {
        false
    }
    pub(in super::super) unsafe fn configure() {}
    pub(in super::super) unsafe fn release() {}
    impl Product {
        pub(in super::super) unsafe fn run_on_tiles(&self) {}
    }
}
