//! Messages that nobody receives: one thread of a session runs them when they have lain for long enough.
use crate::hub::{Hub, Lines};
use crate::{RunError, Session};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

/// What the thread that runs such messages is at.
#[derive(Default)]
pub(crate) struct Attendance {
    /// It was started and has not ended.
    here: bool,
    /// It is to end.
    closed: bool,
    /// It sleeps, until then or for as long as nothing comes.
    asleep: Option<Option<Instant>>,
}

impl Attendance {
    fn sleeps_beyond(&self, due: Instant) -> bool {
        self.asleep.is_some_and(|t| t.is_none_or(|t| due < t))
    }
}

/// Says that the thread is gone, however it went: the next message starts another.
struct Leaving<'h>(&'h Hub);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut lines = self.0.lines();
        lines.attendance.here = false;
        lines.attendance.asleep = None;
    }
}

/// Runs messages whose time has come, until the session is gone.
fn attend(hub: &Hub, session: &Weak<Session>) {
    let _leaving = Leaving(hub);
    let mut lines = hub.lines();
    while !lines.attendance.closed {
        let due = lines.due();
        let left = due.map(|(at, _)| at.saturating_duration_since(Instant::now()));
        if let Some((_, id)) = due.filter(|_| left == Some(Duration::ZERO))
            && let Some(lead) = hub.lead(&mut lines, id)
        {
            drop(lines);
            // Without the session there are no streams: whoever leads them is told by its end.
            match session.upgrade() {
                Some(s) => lead.run(&s),
                None => return,
            }
            lines = hub.lines();
            continue;
        }
        let left = left.filter(|t| !t.is_zero());
        lines.attendance.asleep = Some(due.map(|d| d.0).filter(|_| left.is_some()));
        lines = match left {
            Some(t) => {
                let r = hub.alarm.wait_timeout(lines, t);
                r.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let r = hub.alarm.wait(lines);
                r.unwrap_or_else(PoisonError::into_inner)
            }
        };
        lines.attendance.asleep = None;
    }
}

impl Hub {
    /// Something is to be run at `due` if nobody does before.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn ring(
        self: &Arc<Hub>,
        lines: &mut Lines,
        due: Instant,
        session: &Weak<Session>,
    ) -> Result<(), RunError> {
        let a = &mut lines.attendance;
        if !a.here {
            let (hub, session) = (self.clone(), session.clone());
            let thread = std::thread::Builder::new().name("shopfloor-streams".into());
            match thread.spawn(move || attend(&hub, &session)) {
                Ok(_) => a.here = true,
                Err(e) => {
                    return Err(RunError::Stream {
                        why: format!(
                            "no thread can be started to run what nobody receives ({e}); allow this process more threads, or send with Stream::with_linger(Duration::MAX) and receive"
                        ),
                    });
                }
            }
        } else if a.sleeps_beyond(due) {
            self.alarm.notify_all();
        }
        Ok(())
    }

    /// Messages that waited for others may be run now.
    pub fn look_again(&self, lines: &Lines) {
        let a = &lines.attendance;
        if a.asleep.is_some() && lines.due().is_some_and(|d| a.sleeps_beyond(d.0)) {
            self.alarm.notify_all();
        }
    }

    /// Has the thread end.
    pub fn close(&self) {
        self.lines().attendance.closed = true;
        self.alarm.notify_all();
    }
}
