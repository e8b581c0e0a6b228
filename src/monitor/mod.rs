//! Monitors: evaluations that run again and again (as in PandaProbe).
//!
//! A monitor is a record in a folder: what to score, which targets, how many of them, and when. A tick
//! runs what is due. Nothing here knows how a run is made.

mod cadence;
mod due;
mod record;
mod store;

pub use cadence::{Cadence, CadenceError, CronSchedule};
pub use due::{
    Decision, Order, Outcome, RunMade, RunMonitor, TickReport, changed_files, decide, tick, trigger,
};
pub use record::{FileMark, Monitor, MonitorError, MonitorStatus, NewMonitor, monitor_id};
pub use store::{Listing, MonitorStore, RunLock, StoreError};
