//! Attempts in flight per endpoint: the first line of defence of every balancer that looks.
//!
//! An attempt counts from its pick until its connection is free. `per-loop`: each loop sees its own
//! attempts; `shared`: one atomic per endpoint, every loop sees all of them; `exchange`: its own live
//! and the sum of the others' at the last fold.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::endpoint::EndpointId;
use crate::exchange::Published;
use crate::process::Process;
use crate::store::{Counter, Local, Placement};

pub(crate) enum Inflight {
    PerLoop(Box<[Local]>),
    Shared(Arc<Process>),
    Exchange(Exchanged),
}

pub(crate) struct Exchanged {
    process: Arc<Process>,
    own: usize,
    /// Of the other loops, at the last fold.
    others: Box<[u64]>,
}

impl Inflight {
    pub(crate) fn new(placement: Placement, process: &Arc<Process>, loop_index: u32) -> Self {
        let endpoints = process.endpoints();
        match placement {
            Placement::PerLoop => {
                Inflight::PerLoop((0..endpoints).map(|_| Local::new(0)).collect())
            }
            Placement::Shared => Inflight::Shared(Arc::clone(process)),
            Placement::Exchange => Inflight::Exchange(Exchanged {
                process: Arc::clone(process),
                own: loop_index as usize,
                others: (0..endpoints).map(|_| 0).collect(),
            }),
        }
    }

    pub(crate) fn begin(&self, id: EndpointId) {
        match self {
            Inflight::PerLoop(cells) => cells[id.index()].add(1),
            Inflight::Shared(process) => process.endpoint(id).inflight.add(1),
            Inflight::Exchange(pages) => pages.cell(id).add(1),
        }
    }

    pub(crate) fn end(&self, id: EndpointId) {
        match self {
            Inflight::PerLoop(cells) => cells[id.index()].sub(1),
            Inflight::Shared(process) => process.endpoint(id).inflight.sub(1),
            Inflight::Exchange(pages) => pages.cell(id).sub(1),
        }
    }

    pub(crate) fn load(&self, id: EndpointId) -> u64 {
        match self {
            Inflight::PerLoop(cells) => Counter::load(&cells[id.index()]),
            Inflight::Shared(process) => Counter::load(&process.endpoint(id).inflight),
            Inflight::Exchange(pages) => Counter::load(pages.cell(id)) + pages.others[id.index()],
        }
    }

    /// Reads what the other loops publish.
    pub(crate) fn fold(&mut self) {
        let Inflight::Exchange(pages) = self else {
            return;
        };
        let Exchanged {
            process,
            own,
            others,
        } = pages;
        for (index, sum) in others.iter_mut().enumerate() {
            let cells = process.endpoint(EndpointId(index as u32));
            let all = cells.pages.iter().enumerate();
            let theirs = all.filter(|(index, _)| index != own);
            *sum = theirs.map(|(_, page)| Counter::load(&page.inflight)).sum();
        }
    }

    /// What this loop itself has in flight; `None` where the loops' attempts are counted together.
    pub(crate) fn own(&self, id: EndpointId) -> Option<u64> {
        match self {
            Inflight::PerLoop(_) => Some(self.load(id)),
            Inflight::Shared(_) => None,
            Inflight::Exchange(pages) => Some(Counter::load(pages.cell(id))),
        }
    }
}

impl Exchanged {
    fn cell(&self, id: EndpointId) -> &Published {
        &self.process.endpoint(id).pages[self.own].inflight
    }
}
