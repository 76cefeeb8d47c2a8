//! The pinned scenario of the demonstration: five endpoints, one of which turns slow and heals.

use evenkeel_base::Duration;
use loadgen_scenario::Scenario;

use crate::report::Phase;
use crate::world::{Run, World};

/// The endpoint that turns slow.
pub const GRAY: u32 = 4;

const WARM: Duration = Duration::from_secs(2);
const ONSET: Duration = Duration::from_secs(8);
const HEALED: Duration = Duration::from_secs(14);
const END: Duration = Duration::from_secs(24);

/// The scenario `gray-failure`: 5 endpoints with 32 servers each, service 5 ms half fixed half exponential, Poisson 1,600/s, two
/// loops; warm-up to 2 s, healthy to 8 s, one endpoint 10 times slower to 14 s, healed to 24 s.
#[derive(Clone, Debug)]
pub struct Demo {
    pub world: World,
}

impl Demo {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let scenario = Scenario::named("gray-failure").expect("in the library");
        Demo {
            world: World::new(scenario, seed),
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
