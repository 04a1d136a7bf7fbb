//! How much memory there is to take.

use std::path::Path;

/// Memory that can be taken without swapping and without meeting the limit of a container, in bytes,
/// where the system tells.
pub fn available_memory() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.as_deref().and_then(free_of_machine);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let container = room_in_groups(Path::new("/sys/fs/cgroup"), &groups);
    machine.into_iter().chain(container).min()
}

/// `MemAvailable` of `/proc/meminfo`.
fn free_of_machine(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// What the tightest of a process's control groups leaves: those that `/proc/self/cgroup` names and
/// all above them, of version 2 and of version 1's memory controller.
fn room_in_groups(mounted: &Path, groups: &str) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, limit, used, cached) = match controllers {
            "" => (
                mounted.to_owned(),
                "memory.max",
                "memory.current",
                "inactive_file",
            ),
            _ if controllers.split(',').any(|name| name == "memory") => (
                mounted.join("memory"),
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            ),
            _ => continue,
        };
        // Inside a container the path may be the host's; the groups above it are there all the same.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let group = root.join(group);
            let number = |name: &str| -> Option<u64> {
                let text = std::fs::read_to_string(group.join(name)).ok()?;
                text.trim().parse().ok()
            };
            // `max`, or no file: no limit.
            let Some(limit) = number(limit) else {
                continue;
            };
            let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
            let reclaimed = stat.lines().find_map(|line| {
                let (name, value) = line.split_once(' ')?;
                (name == cached).then(|| value.parse::<u64>().ok())?
            });
            let used = number(used).unwrap_or(0);
            let used = used.saturating_sub(reclaimed.unwrap_or(0));
            let room = limit.saturating_sub(used);
            least = Some(least.map_or(room, |least: u64| least.min(room)));
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let file = root.join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("folders");
        std::fs::write(file, text).expect("written");
    }

    #[test]
    fn the_tightest_group_counts_and_what_can_be_reclaimed_is_free() {
        let place = tempfile::tempdir().expect("directory");
        let root = place.path();
        write(root, "a/b/memory.max", "max\n");
        write(root, "a/memory.max", "8000\n");
        write(root, "a/memory.current", "3000\n");
        write(root, "a/memory.stat", "anon 2000\ninactive_file 500\n");
        assert_eq!(room_in_groups(root, "0::/a/b\n"), Some(5500));
        assert_eq!(room_in_groups(root, "0::/elsewhere\n"), None);
        write(root, "memory/c/memory.limit_in_bytes", "1000");
        write(root, "memory/c/memory.usage_in_bytes", "400");
        let both = "4:cpu,memory:/c\n3:cpu:/a\n0::/a/b\n";
        assert_eq!(room_in_groups(root, both), Some(600));
        write(root, "memory/c/memory.usage_in_bytes", "4000");
        assert_eq!(room_in_groups(root, both), Some(0));
    }

    #[test]
    fn the_machines_own_figure_is_read() {
        let text = "MemTotal: 100 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(free_of_machine(text), Some(2048 * 1024));
    }
    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells_its_memory() {
        assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
