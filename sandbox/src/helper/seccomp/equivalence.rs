//! A forked program may do exactly what a program that was started cold may do.

#![expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]

use nix::libc;
use nix::unistd::Pid;
use seccompiler::BpfProgram;

use super::{OWN_PID, Permissions, filters, forked_filter, rules, server_rules};

const ALLOW: u32 = 0x7FFF_0000;

/// The process that the filters belong to.
const PID: i32 = 4711;

/// `struct seccomp_data` as words, see seccomp(2).
struct Call {
    number: u32,
    arguments: [u32; 6],
}

impl Call {
    fn word(&self, offset: u32, architecture: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => architecture,
            // Little endian: the lower half of each argument comes first.
            16.. if offset.is_multiple_of(8) => self.arguments[(offset as usize - 16) / 8],
            _ => 0,
        }
    }
}

/// What a filter answers. Instructions as in the kernel's `linux/filter.h`.
fn answer(program: &BpfProgram, call: &Call) -> u32 {
    // The architecture that the filter itself asks for.
    let architecture = program[1].k;
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let instruction = &program[at];
        at += 1;
        let k = instruction.k;
        let jump = |is_true: bool| {
            usize::from(if is_true {
                instruction.jt
            } else {
                instruction.jf
            })
        };
        match instruction.code {
            0x20 => accumulator = call.word(k, architecture),
            0x54 => accumulator &= k,
            0x05 => at += k as usize,
            0x15 => at += jump(accumulator == k),
            0x25 => at += jump(accumulator > k),
            0x35 => at += jump(accumulator >= k),
            0x06 => return k,
            code => panic!("instruction {code:#x}"),
        }
    }
}

fn allows(programs: &[BpfProgram], call: &Call) -> bool {
    programs
        .iter()
        .all(|program| answer(program, call) == ALLOW)
}

#[test]
fn forked_and_cold_programs_may_do_the_same() {
    let firsts = [
        0,
        1,
        2,
        15,
        16,
        22,
        PID as u32,
        PID as u32 + 1,
        OWN_PID,
        u32::MAX,
        libc::SIGCHLD as u32,
        libc::CLONE_THREAD as u32,
        (libc::CLONE_THREAD | libc::CLONE_VM) as u32,
        (libc::CLONE_THREAD | libc::CLONE_NEWUSER) as u32,
        libc::CLONE_NEWPID as u32,
    ];
    let seconds = [0, 1, 2, 4, 5, 8, 1031, 0x5401, 0x5412, 0x5413];
    let mut allowed = 0;
    for bits in 0..4u8 {
        let permissions = Permissions {
            children: false,
            threads: bits & 1 != 0,
            only_signals_to: Some(Pid::from_raw(PID)),
            metadata: bits & 2 != 0,
        };
        let cold = rules(permissions).and_then(filters).unwrap();
        let mut own = forked_filter(permissions).unwrap();
        for instruction in own.iter_mut().filter(|i| i.k == OWN_PID) {
            instruction.k = PID as u32;
        }
        let mut warm = server_rules(permissions)
            .and_then(filters)
            .unwrap()
            .to_vec();
        warm.push(own);
        // Beyond all numbers that are in use, and the x32 ones.
        let numbers = (0..700).chain(0x4000_0000..0x4000_0250);
        for number in numbers {
            // No rule depends on both arguments but that for pairs of sockets, whose first is 1.
            let calls = firsts.map(|first| (first, 0)).into_iter();
            for (first, second) in calls.chain(seconds.map(|second| (1, second))) {
                let arguments = [first, second, 0, 0, 0, 0];
                let call = Call { number, arguments };
                let is_allowed = allows(&cold, &call);
                assert_eq!(
                    allows(&warm, &call),
                    is_allowed,
                    "call {number} with {first:#x}, {second:#x}"
                );
                allowed += u32::from(is_allowed);
            }
        }
    }
    assert!(allowed > 1000);
}
