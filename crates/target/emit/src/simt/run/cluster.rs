//! CTAs of a cluster that read each other's shared memory: each is run to where they meet, and then each from its beginning
//! on with what the others have there, which is the same as side by side: until they meet none sees the others.
use super::super::ir::Inst;
use super::meeting::Meeting;
use super::{Machine, Memory, StopReason};

fn meets(body: &[Inst]) -> bool {
    body.iter()
        .any(|i| matches!(i, Inst::ClusterWait) || meets(i.body()))
}

impl<M: Memory> Machine<'_, M> {
    /// Runs the CTA of the task at hand, and before it those of its cluster as far as it needs them.
    pub(super) fn with_cluster(&mut self, all: &[usize]) -> Result<(), StopReason> {
        let p = self.p;
        if !meets(&p.body) {
            return self.cta(all);
        }
        let (task, size) = (self.task, i64::from(p.cluster));
        let first = task - task % size;
        if self.cluster.peers.as_ref().is_none_or(|c| c.0 != first) {
            let mut peers = vec![];
            for other in first..first + size {
                self.task = other;
                self.cluster = Meeting {
                    until: true,
                    ..Meeting::default()
                };
                match self.cta(all) {
                    Err(StopReason::Met) => {}
                    Ok(()) => return Err("a CTA does not meet its cluster".into()),
                    Err(e) => return Err(e),
                }
                peers.push(self.shared.drain(..).map(|a| a.0).collect());
            }
            self.cluster.peers = Some((first, peers));
        }
        self.task = task;
        self.cluster = Meeting {
            peers: self.cluster.peers.take(),
            ..Meeting::default()
        };
        self.cta(all)?;
        match self.cluster.reads {
            true => {
                Err("a CTA may end before others of its cluster have read what it keeps".into())
            }
            false => Ok(()),
        }
    }

    /// A meeting of the cluster, or what is read of its CTAs.
    pub(super) fn cluster_inst(&mut self, i: &Inst, active: &[usize]) -> Result<(), StopReason> {
        match i {
            Inst::ClusterArrive | Inst::ClusterWait => {
                let arrives = matches!(i, Inst::ClusterArrive);
                let own = &mut self.cluster;
                if active.len() != self.meeting || arrives == own.arrived {
                    return Err(
                        "CTAs meet where not all threads come by, or have not arrived".into(),
                    );
                }
                own.arrived = arrives;
                if !arrives {
                    own.met += 1;
                    own.reads = false;
                    self.meet();
                    if self.cluster.until {
                        return Err(StopReason::Met);
                    }
                }
                Ok(())
            }
            Inst::LoadPart {
                dst,
                array,
                rank,
                index,
                guard,
            } => {
                if self.cluster.met != 1 || self.cluster.arrived {
                    return Err("a CTA reads what another may write: they have not met".into());
                }
                self.cluster.reads = true;
                for &l in active {
                    let asked = guard.is_none_or(|g| self.get(g, l) != 0);
                    let (rank, at) = (self.int(*rank, l), self.int(*index, l));
                    if asked && at % dst.len() as i64 != 0 {
                        return Err(format!("{} elements are read at {at}", dst.len()).into());
                    }
                    for (&r, at) in dst.iter().zip(at..) {
                        let v = match asked {
                            true => self.part((*array, rank), at)?,
                            false => 0,
                        };
                        self.set(r, l, v);
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Element `at` of an array that a CTA keeps, which holds a strange number where that has not written.
    fn part(&self, (array, rank): (u32, i64), at: i64) -> Result<u64, String> {
        let peers = self.cluster.peers.as_ref();
        let cta = peers.and_then(|c| c.1.get(usize::try_from(rank).ok()?));
        let own = &self.p.shared[array as usize];
        let found = cta.and_then(|c| c[array as usize].get(usize::try_from(at).ok()?));
        match found {
            Some(&v) => Ok(v),
            None => Err(format!(
                "'{}' of CTA {rank} is read at {at} of {}",
                own.name, own.elements
            )),
        }
    }
}
