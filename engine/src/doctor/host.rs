//! What this host says of itself: files below /proc and /sys, read and nothing more.
//!
//! Every file may be missing or odd: the answer is then `None`, and the check says that it cannot tell.

use std::fs;
use std::path::{Path, PathBuf};

use super::parse::{self, Limit, Quota};

/// A network card, and which cores its packets reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) name: String,
    /// Cores that handle its interrupts, or to which its packets are steered in software (RPS).
    pub(super) cores: Vec<usize>,
}

pub(super) struct Host {
    root: PathBuf,
}

impl Host {
    /// The real one is at `/`; tests have others.
    pub(super) fn at(root: &Path) -> Host {
        Host {
            root: root.to_path_buf(),
        }
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    fn folder(&self, path: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.root.join(path)).ok()?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        Some(names)
    }

    /// The value of a kernel parameter, by the name that sysctl(8) uses.
    pub(super) fn sysctl(&self, name: &str) -> Option<u64> {
        parse::number(&self.text(&format!("proc/sys/{}", name.replace('.', "/")))?)
    }

    pub(super) fn release(&self) -> Option<String> {
        Some(self.text("proc/sys/kernel/osrelease")?.trim().to_owned())
    }

    /// A limit of this process, by its row in /proc/self/limits.
    pub(super) fn limit(&self, row: &str) -> Option<Limit> {
        parse::limit(&self.text("proc/self/limits")?, row)
    }

    /// 0 no filter, 1 strict, 2 a filter of system calls.
    pub(super) fn seccomp(&self) -> Option<u64> {
        parse::number(parse::status(&self.text("proc/self/status")?, "Seccomp")?)
    }

    /// Whether this process has the capability of that number (capabilities(7)).
    pub(super) fn capable(&self, number: u32) -> Option<bool> {
        let status = self.text("proc/self/status")?;
        let held = u64::from_str_radix(parse::status(&status, "CapEff")?, 16).ok()?;
        Some(held >> number & 1 == 1)
    }

    /// The tightest quota on the way from this process's control group up.
    pub(super) fn quota(&self) -> Option<Quota> {
        let (controllers, group) = parse::cgroup(&self.text("proc/self/cgroup")?)?;
        let mount = match &controllers {
            Some(controllers) => format!("sys/fs/cgroup/{controllers}"),
            None => "sys/fs/cgroup".to_owned(),
        };
        let quotas = Path::new(&group).ancestors().filter_map(|above| {
            let folder = format!("{mount}{}", above.display());
            match controllers {
                Some(_) => parse::cfs(
                    &self.text(&format!("{folder}/cpu.cfs_quota_us"))?,
                    &self.text(&format!("{folder}/cpu.cfs_period_us"))?,
                ),
                None => parse::cpu_max(&self.text(&format!("{folder}/cpu.max"))?),
            }
        });
        let tightest = quotas.min_by_key(|quota| quota.millicores());
        // The group at the top of a machine has no file, and no quota.
        tightest.or((group == "/" && self.folder(&mount).is_some()).then_some(Quota::Unlimited))
    }

    /// Cores that the scheduler leaves alone.
    pub(super) fn isolated(&self) -> Option<Vec<usize>> {
        parse::cores(&self.text("sys/devices/system/cpu/isolated")?)
    }

    /// How a core's clock is governed.
    pub(super) fn governor(&self, core: usize) -> Option<String> {
        let path = format!("sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor");
        Some(self.text(&path)?.trim().to_owned())
    }

    /// The cards with interrupts of their own; loopback and virtual interfaces have none.
    pub(super) fn cards(&self) -> Option<Vec<Card>> {
        let names = self.folder("sys/class/net")?;
        Some(names.iter().filter_map(|name| self.card(name)).collect())
    }

    fn card(&self, name: &str) -> Option<Card> {
        let device = fs::canonicalize(self.root.join(format!("sys/class/net/{name}/device")));
        // A virtio device's interrupts are those of the bus device above it.
        let device = device.ok()?;
        let interrupts = device
            .ancestors()
            .take(2)
            .find_map(|device| fs::read_dir(device.join("msi_irqs")).ok())?;
        let mut cores: Vec<usize> = interrupts
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|irq| self.interrupt(&irq))
            .flatten()
            .collect();
        if cores.is_empty() {
            return None;
        }
        let queues = format!("sys/class/net/{name}/queues");
        for queue in self.folder(&queues)? {
            let steered = self.text(&format!("{queues}/{queue}/rps_cpus"));
            cores.extend(
                steered
                    .and_then(|text| parse::mask(&text))
                    .into_iter()
                    .flatten(),
            );
        }
        cores.sort_unstable();
        cores.dedup();
        Some(Card {
            name: name.to_owned(),
            cores,
        })
    }

    /// The cores that handle an interrupt; none when it only tells of changes in the card itself or
    /// of packets that have been sent.
    fn interrupt(&self, irq: &str) -> Option<Vec<usize>> {
        let folder = format!("proc/irq/{irq}");
        let action = self
            .folder(&folder)?
            .into_iter()
            .find(|entry| self.root.join(&folder).join(entry).is_dir());
        let quiet = ["config", "output", "control", "async", "tx-"];
        // An interrupt without an action has no owner yet.
        let action = action?.to_lowercase();
        if quiet.iter().any(|word| action.contains(word)) && !action.contains("rx") {
            return None;
        }
        ["effective_affinity_list", "smp_affinity_list"]
            .iter()
            .filter_map(|file| parse::cores(&self.text(&format!("{folder}/{file}"))?))
            .find(|cores| !cores.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A host of a few files; removed when dropped.
    struct Model(PathBuf);

    impl Model {
        fn new(name: &str, files: &[(&str, &str)]) -> Model {
            let unique = format!("evenkeel-host-{}-{name}", std::process::id());
            let model = Model(std::env::temp_dir().join(unique));
            fs::create_dir_all(&model.0).unwrap();
            for (path, text) in files {
                let path = model.0.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            model
        }

        fn host(&self) -> Host {
            Host::at(&self.0)
        }
    }

    impl Drop for Model {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_host_without_files_says_nothing() {
        let model = Model::new("empty", &[]);
        let host = model.host();
        assert_eq!(host.sysctl("net.core.somaxconn"), None);
        assert_eq!(host.release(), None);
        assert_eq!(host.limit("Max open files"), None);
        assert_eq!((host.seccomp(), host.capable(14)), (None, None));
        assert_eq!(host.quota(), None);
        assert_eq!(host.isolated(), None);
        assert_eq!(host.governor(0), None);
        assert_eq!(host.cards(), None);
    }

    #[test]
    fn files_with_nonsense_say_nothing() {
        let odd = "\u{0}oops -- ::\n";
        let model = Model::new(
            "odd",
            &[
                ("proc/sys/net/core/somaxconn", odd),
                ("proc/self/limits", odd),
                ("proc/self/status", "Seccomp:\tx\nCapEff:\tzz\n"),
                ("proc/self/cgroup", odd),
                ("sys/devices/system/cpu/isolated", odd),
            ],
        );
        let host = model.host();
        assert_eq!(host.sysctl("net.core.somaxconn"), None);
        assert_eq!(host.limit("Max open files"), None);
        assert_eq!((host.seccomp(), host.capable(14)), (None, None));
        assert_eq!(host.quota(), None);
        assert_eq!(host.isolated(), None);
    }

    #[test]
    fn the_tightest_quota_above_counts() {
        let model = Model::new(
            "quota",
            &[
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
                ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ],
        );
        assert_eq!(model.host().quota().map(Quota::millicores), Some(500));
        let first = Model::new(
            "quota1",
            &[
                ("proc/self/cgroup", "4:cpu,cpuacct:/docker/x\n0::/\n"),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(first.host().quota().map(Quota::millicores), Some(1500));
    }

    #[test]
    fn the_top_group_has_no_quota_and_a_hidden_one_is_unknown() {
        let top = [
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/cgroup.controllers", ""),
        ];
        let model = Model::new("top", &top);
        assert_eq!(model.host().quota(), Some(Quota::Unlimited));
        let model = Model::new("hidden", &[("proc/self/cgroup", "0::/a\n")]);
        assert_eq!(model.host().quota(), None);
    }

    #[test]
    fn a_card_reaches_the_cores_of_its_receive_interrupts_and_of_rps() {
        let device = "sys/devices/pci/1/virtio2";
        let model = Model::new(
            "card",
            &[
                ("sys/devices/pci/1/msi_irqs/37", ""),
                ("sys/devices/pci/1/msi_irqs/38", ""),
                ("sys/devices/pci/1/msi_irqs/39", ""),
                (&format!("{device}/vendor"), ""),
                ("proc/irq/37/virtio2-config/x", ""),
                ("proc/irq/37/effective_affinity_list", "5\n"),
                ("proc/irq/38/virtio2-input.0/x", ""),
                ("proc/irq/38/effective_affinity_list", "1\n"),
                ("proc/irq/39/virtio2-output.0/x", ""),
                ("proc/irq/39/effective_affinity_list", "6\n"),
                ("sys/class/net/eth0/queues/rx-0/rps_cpus", "0c\n"),
                ("sys/class/net/lo/queues/rx-0/rps_cpus", "1\n"),
            ],
        );
        symlink(
            model.0.join(device),
            model.0.join("sys/class/net/eth0/device"),
        )
        .unwrap();
        let eth0 = Card {
            name: "eth0".into(),
            cores: vec![1, 2, 3],
        };
        assert_eq!(model.host().cards(), Some(vec![eth0]));
    }
}
