//! The pinned scenario of the demonstration: five endpoints, one of which turns slow and heals.

use evenkeel_base::Duration;
use evenkeel_policy::{Config, Replay};
use loadgen_scenario::fault::FaultKind;
use loadgen_scenario::{Fault, Faults, Law, arrivals};

use crate::report::Phase;
use crate::world::{Run, World};

/// The endpoint that turns slow.
pub const GRAY: u32 = 4;

const WARM: Duration = Duration::from_secs(2);
const ONSET: Duration = Duration::from_secs(8);
const HEALED: Duration = Duration::from_secs(14);
const END: Duration = Duration::from_secs(24);

/// 5 endpoints with 32 servers each, service 5 ms half fixed half exponential, Poisson 1,600/s, two
/// loops; warm-up to 2 s, healthy to 8 s, one endpoint 10 times slower to 14 s, healed to 24 s.
#[derive(Clone, Debug)]
pub struct Demo {
    pub world: World,
}

impl Demo {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let slow = Faults::new(vec![Fault {
            kind: FaultKind::Slow(10.0),
            from: ONSET,
            until: HEALED,
        }]);
        let mut faults = vec![Faults::default(); 5];
        faults[GRAY as usize] = slow;
        Demo {
            world: World {
                policy: Config::new(5),
                loops: 2,
                rate: 1_600.0,
                arrivals: arrivals::Process::Poisson,
                length: END,
                servers: 32,
                service: Law::Half(Duration::from_millis(5)),
                faults,
                hop: Duration::from_micros(100),
                timeout: Duration::from_secs(15),
                replay: Replay::Replayable,
                seed,
            },
        }
    }

    #[must_use]
    pub fn healthy(run: &Run) -> Phase {
        run.phase(WARM..ONSET)
    }

    /// The onset included.
    #[must_use]
    pub fn gray(run: &Run) -> Phase {
        run.phase(ONSET..HEALED)
    }

    #[must_use]
    pub fn healed(run: &Run) -> Phase {
        run.phase(HEALED..END)
    }

    /// Time from healing to 70 % of the fair share.
    #[must_use]
    pub fn time_to_return(run: &Run) -> Option<Duration> {
        run.time_to_return(GRAY, HEALED)
    }
}
