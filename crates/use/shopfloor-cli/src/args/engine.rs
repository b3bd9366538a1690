//! Where a model runs or is planned for, and what its plan is to be good at.

use super::values::{bytes, time};
use crate::output::{Done, Failure, note};
use clap::Args;
use shopfloor::{Goal, Isa, Launch, Machine, Session, SessionBuilder, machines};
use shopfloor_tools::planview;
use shopfloor_tools::report::units;
use shopfloor_tools::targets::{Kernels, Machines, Planning, is_device};
use std::sync::Once;

fn isa(text: &str) -> Result<Isa, String> {
    Isa::from_name(text).ok_or_else(|| {
        format!("'{text}' is no instruction set of ours; they are avx512, avx2 and portable")
    })
}

/// A goal with its bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct GoalArg {
    pub goal: Goal,
    /// Seconds that the slowest of a hundred requests may take.
    pub bound_s: Option<f64>,
}

fn goal(text: &str) -> Result<GoalArg, String> {
    let wrong = || {
        format!(
            "'{text}' should be latency, throughput, or one of them with a bound, such as throughput:5ms"
        )
    };
    let (name, bound) = match text.split_once(':') {
        Some((n, b)) => (n, Some(b)),
        None => (text, None),
    };
    let bound_s = match bound {
        None => None,
        Some(b) => Some(time(b).ok().filter(|v| *v > 0.0).ok_or_else(wrong)?),
    };
    let goal = match name {
        "latency" => Goal::Latency,
        "throughput" => Goal::Throughput {
            max_latency_s: bound_s,
        },
        _ => return Err(wrong()),
    };
    Ok(GoalArg { goal, bound_s })
}

/// Whose kernels a machine is planned with.
fn kernels(text: &str) -> Result<Kernels, String> {
    match text {
        "ours" => Ok(Kernels::Ours),
        "vendor" => Ok(Kernels::Vendor),
        _ => Err(format!("'{text}' is neither ours nor vendor")),
    }
}

/// Whose kernels.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Where and how well")]
pub struct KernelsArgs {
    /// Whose kernels to predict: ours, or vendor for those of the GPU vendor's library [default: ours; plan
    /// over several machines: both]
    #[arg(long, value_name = "WHOSE", value_parser = kernels)]
    pub kernels: Option<Kernels>,
}

/// Where it runs or is planned for. What `--on` may name is said by each command's help
/// ([`crate::help::on`]).
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Where and how well")]
pub struct EngineArgs {
    /// Where
    #[arg(long = "on", value_name = "NAME")]
    pub on: Option<String>,
    /// How steps reach an NVIDIA GPU: steps launches each, graph many at once, resident keeps one kernel there
    /// that takes them all; bench compares steps,resident [default: steps or graph, what is predicted to take
    /// less]
    #[arg(long, value_name = "HOW", value_delimiter = ',')]
    pub launch: Vec<Launch>,
    /// Workers of the CPU, the calling thread included [default: the cores this process may use]
    #[arg(long, value_name = "N", value_parser = super::whole::<u32>(1..=4096))]
    pub threads: Option<u32>,
    /// Instruction set of the CPU: avx512, avx2 or portable [default: the best there is]
    #[arg(long, value_name = "NAME", value_parser = isa)]
    pub isa: Option<Isa>,
    /// Description that a device is planned by: a name, a TOML file, or detected for this CPU without its
    /// calibration [default: its own]
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// What the plan is to be good at: latency or throughput, with a bound such as throughput:5ms [default:
    /// latency]
    #[arg(long, value_name = "GOAL", value_parser = goal)]
    pub goal: Option<GoalArg>,
    /// Time that 99 of 100 requests may take, such as 50ms: the bound of --goal, which has to be given
    #[arg(long, value_name = "TIME", value_parser = time, requires = "goal")]
    pub max_latency: Option<f64>,
    /// Memory that a plan may take, such as 512MiB: packed weights, arena and scratch
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub memory: Option<u64>,
    /// Refuse a model whose weights a GPU has no room for, rather than stream them from the host
    #[arg(long)]
    pub no_streaming: bool,
}

/// What a plan is for.
pub enum Place {
    /// A device that runs, which is asked for its plan.
    Device,
    /// What is planned for and need not be here.
    Machines(Machines),
}

/// Refuses the options that were given, each with its name, since they do nothing for `what`.
pub fn refuse(given: &[(bool, &str)], what: &str) -> Result<(), Failure> {
    match given.iter().find(|g| g.0) {
        None => Ok(()),
        Some((_, option)) => Err(Failure::Usage(format!(
            "{option} does nothing for {what}; leave it out"
        ))),
    }
}

impl EngineArgs {
    /// These arguments for another process.
    pub fn to_arguments(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut add = |option: &str, value: Option<String>| {
            if let Some(v) = value {
                out.extend([format!("--{option}"), v]);
            }
        };
        add("on", self.on.clone());
        add("launch", self.launch.first().map(ToString::to_string));
        add("threads", self.threads.map(|n| n.to_string()));
        add("isa", self.isa.map(|i| i.to_string()));
        add("machine", self.machine.clone());
        add("memory", self.memory.map(|n| n.to_string()));
        if self.no_streaming {
            out.push("--no-streaming".into());
        }
        out
    }

    /// How steps reach the GPU, where that was said.
    pub fn launch(&self) -> Result<Option<Launch>, Failure> {
        match self.launch[..] {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            _ => Err(Failure::Usage(
                "only bench compares two ways to launch; give --launch steps, graph or resident"
                    .into(),
            )),
        }
    }

    /// Refuses `--launch` where requests of `session`, which has run one, go by another way.
    pub fn launched(&self, session: &Session) -> Result<(), Failure> {
        let took = |asked| planview::took(session, asked);
        Ok(self.launch()?.map_or(Ok(()), took)?)
    }

    /// The goal asked for.
    pub fn goal(&self) -> GoalArg {
        let mut g = self.goal.unwrap_or_default();
        if let Some(s) = self.max_latency {
            g.bound_s = Some(s);
            if let Goal::Throughput { max_latency_s } = &mut g.goal {
                *max_latency_s = Some(s);
            }
        }
        g
    }

    /// A session on the device asked for.
    pub fn builder(&self) -> Result<SessionBuilder, Failure> {
        let mut b = Session::builder().with_goal(self.plan_goal()?);
        if let Some(l) = self.launch()? {
            b = b.with_launch(l);
        }
        if let Some(d) = &self.on {
            b = b.with_device(d);
            // A name of no device is refused before a model is read.
            if !is_device(d) {
                b.engine()?;
            }
        }
        if let Some(t) = self.threads {
            let described = self.machine.as_deref().map(machines::find).transpose()?;
            self.tell_threads(described.as_slice())?;
            b = b.with_threads(t as usize);
        }
        if let Some(m) = self.memory {
            b = b.with_memory_limit(m);
        }
        if let Some(i) = self.isa {
            if !i.available() {
                return Err(Failure::Usage(format!(
                    "this CPU does not have {i}; leave --isa out or choose another"
                )));
            }
            b = b.with_isa(i);
        }
        if let Some(m) = &self.machine {
            let described = machines::find(m)?;
            let here = self.on.as_deref().unwrap_or("cpu");
            if here == "cpu" && described.is_gpu() {
                return Err(Failure::Usage(format!(
                    "--machine {m} describes a GPU, and a CPU runs this; plan for it with --on {m}"
                )));
            }
            b = b.with_machine(described);
        }
        if self.no_streaming {
            let on = self.on.as_deref().unwrap_or("cpu");
            refuse(&[(on == "cpu", "--no-streaming")], "a CPU")?;
            b = b.without_streaming();
        }
        Ok(b)
    }

    /// What a plan is for: a device that is here, or machines that need not be.
    pub fn place(&self) -> Result<Place, Failure> {
        let Some(on) = self.on.as_deref().filter(|on| !is_device(on)) else {
            return Ok(Place::Device);
        };
        self.refuse_of_devices(on)?;
        let machines = Machines::named(on)?;
        self.tell_threads(machines.all())?;
        Ok(Place::Machines(machines))
    }

    /// What is planned for, for commands that run nothing: this CPU when none is named.
    pub fn planned_for(&self) -> Result<Machines, Failure> {
        self.refuse_of_running()?;
        let machines = match (self.on.as_deref().unwrap_or("cpu"), &self.machine) {
            ("cpu", Some(m)) => machines::find(m)?.into(),
            (on, _) => {
                self.refuse_of_devices(on)?;
                Machines::named(on)?
            }
        };
        self.tell_threads(machines.all())?;
        Ok(machines)
    }

    /// As [`EngineArgs::planned_for`], for what looks at a machine alone; `why` says so.
    pub fn planned_for_one(&self, why: &str) -> Result<Machine, Failure> {
        match self.planned_for()? {
            Machines::One(m) => Ok(*m),
            Machines::Pair(both) => Err(Failure::Usage(format!(
                "{} with {} are two machines, and {why}; name one of them",
                both[0].name, both[1].name
            ))),
        }
    }

    /// Refuses what does something only where steps run.
    pub fn refuse_of_running(&self) -> Done {
        refuse(
            &[
                (self.no_streaming, "--no-streaming"),
                (!self.launch.is_empty(), "--launch"),
            ],
            "a command that runs nothing",
        )
    }

    /// Says where `--threads` is more than the CPU has workers, which is the first CPU of `planned`, else this one.
    pub fn tell_threads(&self, planned: &[Machine]) -> Done {
        // A command may ask for several sessions.
        static TOLD: Once = Once::new();
        let Some(asked) = self.threads else {
            return Ok(());
        };
        let cpu = match planned.iter().find(|m| !m.is_gpu()) {
            Some(m) => m.clone(),
            None => machines::find("detected")?,
        };
        if asked as usize > cpu.worker_count() {
            let has = units::plural(cpu.worker_count() as u64, "worker");
            let why = format!(
                "--threads {asked} is more than the {has} of {}; plans use no more than those",
                cpu.name
            );
            TOLD.call_once(|| note(&why));
        }
        Ok(())
    }

    /// The bound of `--goal latency`, which is then checked by whoever takes it: no plan is made for it.
    pub fn take_latency_bound(&mut self) -> Option<f64> {
        let goal = self.goal();
        if matches!(goal.goal, Goal::Latency) {
            self.goal = self.goal.map(|_| GoalArg::default());
            self.max_latency = None;
        }
        goal.bound_s
    }

    /// What a plan is to be good at.
    fn plan_goal(&self) -> Result<Goal, Failure> {
        if self.max_latency.is_some() && self.goal.is_some_and(|g| g.bound_s.is_some()) {
            return Err(Failure::Usage(
                "--goal has a bound and --max-latency gives another; give one of them".into(),
            ));
        }
        let goal = self.goal();
        match (goal.goal, goal.bound_s) {
            (Goal::Latency, Some(_)) => Err(Failure::Usage(
                "a bound of --goal latency is checked by bench alone, since plans are as fast as they can be; leave it out, or give --goal throughput"
                    .into(),
            )),
            (goal, _) => Ok(goal),
        }
    }

    /// Refuses what does something for devices alone.
    fn refuse_of_devices(&self, on: &str) -> Result<(), Failure> {
        refuse(
            &[
                (self.machine.is_some(), "--machine"),
                (self.no_streaming, "--no-streaming"),
            ],
            &format!("{on}, which is planned for and does not run"),
        )
    }

    /// How a machine is planned for, with kernels of ours or the vendor's.
    pub fn planning(&self, kernels: Option<Kernels>) -> Result<Planning, Failure> {
        Ok(Planning {
            kernels: kernels.unwrap_or_default(),
            isa: self.isa,
            threads: self.threads.map(|t| t as usize),
            goal: self.plan_goal()?,
            memory: self.memory,
            launch: self.launch()?,
        })
    }
}
