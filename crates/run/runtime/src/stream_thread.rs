//! The thread of a session that runs stream messages which no caller receives, once their linger time is over.
//! It is started by the first such message, and ends with the session.
use crate::streams::StreamThread;
use crate::streams::{StreamQueues, StreamTable};
use crate::{RunError, Session};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

impl StreamThread {
    fn sleeps_beyond(&self, due: Instant) -> bool {
        self.asleep.is_some_and(|t| t.is_none_or(|t| due < t))
    }
}

/// Records that the thread has ended, also by a panic: the next message starts another.
struct ExitGuard<'h>(&'h StreamQueues);

impl Drop for ExitGuard<'_> {
    fn drop(&mut self) {
        let mut table = self.0.table();
        table.thread.running = false;
        table.thread.asleep = None;
    }
}

/// Runs messages that are due, until the session is gone.
fn run_due_messages(queues: &StreamQueues, session: &Weak<Session>) {
    let _exit = ExitGuard(queues);
    let mut table = queues.table();
    while !table.thread.closed {
        let due = table.due();
        let left = due.map(|(at, _)| at.saturating_duration_since(Instant::now()));
        if let Some((_, id)) = due.filter(|_| left == Some(Duration::ZERO))
            && let Some(batch) = queues.take_batch(&mut table, id)
        {
            drop(table);
            // Without the session there are no streams; dropping the batch gives them their answers.
            match session.upgrade() {
                Some(s) => batch.run(&s),
                None => return,
            }
            table = queues.table();
            continue;
        }
        let left = left.filter(|t| !t.is_zero());
        table.thread.asleep = Some(due.map(|d| d.0).filter(|_| left.is_some()));
        table = match left {
            Some(t) => {
                let r = queues.alarm.wait_timeout(table, t);
                r.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let r = queues.alarm.wait(table);
                r.unwrap_or_else(PoisonError::into_inner)
            }
        };
        table.thread.asleep = None;
    }
}

impl StreamQueues {
    /// Has a message run at `due` if no caller runs it before.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn wake_at(
        self: &Arc<StreamQueues>,
        table: &mut StreamTable,
        due: Instant,
        session: &Weak<Session>,
    ) -> Result<(), RunError> {
        let a = &mut table.thread;
        if !a.running {
            let (queues, session) = (self.clone(), session.clone());
            let thread = std::thread::Builder::new().name("shopfloor-streams".into());
            match thread.spawn(move || run_due_messages(&queues, &session)) {
                Ok(_) => a.running = true,
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

    /// Wakes the thread where a message has become due while it sleeps.
    pub fn notify_if_due(&self, table: &StreamTable) {
        let a = &table.thread;
        if a.asleep.is_some() && table.due().is_some_and(|d| a.sleeps_beyond(d.0)) {
            self.alarm.notify_all();
        }
    }

    /// Ends the thread.
    pub fn close(&self) {
        self.table().thread.closed = true;
        self.alarm.notify_all();
    }
}
