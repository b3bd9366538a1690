//! The adapter with its queue: buffers, pipelines, copies.
use crate::memory::ALIGN;
use crate::ring::Drained;
use device::DeviceError;
use emit::wgsl::{Limits, Wgsl};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long a callback may take once the work that it tells of is done: only another caller's thread,
/// which has it in hand, is waited for.
const CALLBACK: Duration = Duration::from_secs(60);

/// What is said where no adapter answers.
const NOTHING: &str = "no GPU answers; install a Vulkan driver (on Debian: mesa-vulkan-drivers and libvulkan1, which also bring a software one), or use --on cpu";

/// An open adapter.
pub(crate) struct Gpu {
    pub name: String,
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub limits: Limits,
    /// Bytes of a buffer that can be bound.
    pub most_bytes: u64,
    /// Workgroups along one dimension of a dispatch.
    pub most_groups: u32,
    /// Tasks that one submission carries at most.
    pub most_tasks: u32,
    /// Nanoseconds per tick, where passes can be timed.
    pub tick_ns: Option<f32>,
    pub bindings: wgpu::BindGroupLayout,
    layout: wgpu::PipelineLayout,
    pipelines: Mutex<BTreeMap<[u8; 32], Arc<wgpu::ComputePipeline>>>,
    /// Where recorded work waits for its submission.
    ring: Drained<wgpu::CommandBuffer>,
    handed: Mutex<Option<wgpu::SubmissionIndex>>,
    /// Called after every submission.
    pub tell: Option<Tell>,
    /// The first error that nobody was waiting for.
    failed: Arc<Mutex<Option<String>>>,
}

/// What is called after a submission.
pub(crate) type Tell = Box<dyn Fn() + Send + Sync>;

/// Waits for a future that makes progress by itself or when polled.
pub(crate) fn wait<F: Future>(f: F) -> F::Output {
    let mut f = pin!(f);
    let mut ctx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(v) = f.as_mut().poll(&mut ctx) {
            return v;
        }
        std::thread::yield_now();
    }
}

fn refused(step: &str, why: impl Into<String>) -> DeviceError {
    DeviceError::Unsupported {
        device: "wgpu".into(),
        step: step.into(),
        why: why.into(),
    }
}

fn all() -> Vec<wgpu::Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    wait(instance.enumerate_adapters(wgpu::Backends::PRIMARY))
}

/// Names of the adapters that answer.
pub(crate) fn names() -> Vec<String> {
    all().iter().map(|a| a.get_info().name).collect()
}

impl Gpu {
    /// Opens the first adapter whose name contains `wanted`, whatever the case; real ones come
    /// before software.
    pub fn open(wanted: Option<&str>) -> Result<Gpu, DeviceError> {
        let mut found = all();
        if found.is_empty() {
            return Err(refused("start", NOTHING));
        }
        let rank = |a: &wgpu::Adapter| match a.get_info().device_type {
            wgpu::DeviceType::DiscreteGpu => 0,
            wgpu::DeviceType::IntegratedGpu => 1,
            wgpu::DeviceType::VirtualGpu => 2,
            wgpu::DeviceType::Other => 3,
            wgpu::DeviceType::Cpu => 4,
        };
        found.sort_by_key(rank);
        let list: Vec<String> = found.iter().map(|a| a.get_info().name).collect();
        let fits = |a: &wgpu::Adapter| {
            let name = a.get_info().name.to_lowercase();
            wanted.is_none_or(|w| name.contains(&w.to_lowercase()))
        };
        let adapter = found.into_iter().find(fits).ok_or_else(|| {
            refused(
                "start",
                format!(
                    "no adapter is named like '{}'; there are: {}",
                    wanted.unwrap_or_default(),
                    list.join(", ")
                ),
            )
        })?;
        let has = adapter.features();
        let timed = has & wgpu::Features::TIMESTAMP_QUERY;
        let int64 = has & wgpu::Features::SHADER_INT64;
        let limits = adapter.limits();
        let asked = wgpu::DeviceDescriptor {
            label: Some("shopfloor"),
            required_features: timed | int64,
            required_limits: limits.clone(),
            ..Default::default()
        };
        let (device, queue) =
            wait(adapter.request_device(&asked)).map_err(|e| refused("start", e.to_string()))?;
        let failed: Arc<Mutex<Option<String>>> = Arc::default();
        let keep = failed.clone();
        device.on_uncaptured_error(Arc::new(move |e: wgpu::Error| {
            keep.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(e.to_string());
        }));
        let storage = |binding: u32, read_only: bool, offset: bool| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only },
                has_dynamic_offset: offset,
                min_binding_size: None,
            },
            count: None,
        };
        let bindings = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: None,
            entries: &[
                storage(0, false, false),
                storage(1, false, false),
                storage(2, true, true),
            ],
        });
        let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&bindings)],
            immediate_size: 0,
        });
        let threads = limits
            .max_compute_invocations_per_workgroup
            .min(limits.max_compute_workgroup_size_x);
        Ok(Gpu {
            name: adapter.get_info().name,
            limits: Limits {
                threads,
                shared_bytes: limits.max_compute_workgroup_storage_size,
                int64: !int64.is_empty(),
            },
            most_bytes: limits
                .max_storage_buffer_binding_size
                .min(limits.max_buffer_size),
            most_groups: limits.max_compute_workgroups_per_dimension,
            most_tasks: MOST_TASKS,
            tick_ns: (!timed.is_empty()).then(|| queue.get_timestamp_period()),
            device,
            queue,
            bindings,
            layout,
            pipelines: Mutex::default(),
            ring: Drained::new(MOST_TASKS),
            handed: Mutex::default(),
            tell: None,
            failed,
        })
    }

    /// Submissions of at most `tasks` tasks, in dispatches of at most `groups` workgroups along a
    /// dimension.
    pub fn bounded(&mut self, tasks: u32, groups: u32) {
        self.most_tasks = tasks.max(1);
        self.most_groups = groups.clamp(1, self.most_groups);
        self.ring = Drained::new(self.most_tasks);
    }

    /// Tasks that one dispatch takes: those of a submission, as far as two dimensions reach.
    pub fn most_at_once(&self) -> u32 {
        let reach = self.most_groups.saturating_mul(self.most_groups);
        self.most_tasks.min(reach)
    }

    /// A zeroed buffer that shaders use and that is copied to and from.
    pub fn storage(&self, bytes: u64, what: &str) -> Result<wgpu::Buffer, DeviceError> {
        let bytes = bytes.max(ALIGN).next_multiple_of(ALIGN);
        if bytes > self.most_bytes {
            return Err(refused(
                what,
                format!(
                    "{what} takes {bytes} bytes, the adapter binds {} at most; use smaller dimensions or --on cpu",
                    self.most_bytes
                ),
            ));
        }
        let usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST;
        self.buffer(bytes, usage, what)
    }

    fn buffer(
        &self,
        size: u64,
        usage: wgpu::BufferUsages,
        what: &str,
    ) -> Result<wgpu::Buffer, DeviceError> {
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let b = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(what),
            size,
            usage,
            mapped_at_creation: false,
        });
        match wait(scope.pop()) {
            None => Ok(b),
            Some(_) => Err(DeviceError::Memory {
                what: what.into(),
                bytes: size,
            }),
        }
    }

    /// A buffer that the host reads.
    pub fn staging(&self, bytes: u64) -> Result<wgpu::Buffer, DeviceError> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        self.buffer(bytes.max(ALIGN).next_multiple_of(ALIGN), usage, "results")
    }

    /// The pipeline of a module, made once per text.
    pub fn pipeline(
        &self,
        w: &Wgsl,
        step: &str,
    ) -> Result<Arc<wgpu::ComputePipeline>, DeviceError> {
        if w.threads > self.limits.threads {
            return Err(refused(
                step,
                format!(
                    "{} threads, the adapter has {}",
                    w.threads, self.limits.threads
                ),
            ));
        }
        if w.shared_bytes > u64::from(self.limits.shared_bytes) {
            return Err(refused(
                step,
                format!(
                    "{} bytes of workgroup memory, the adapter has {}",
                    w.shared_bytes, self.limits.shared_bytes
                ),
            ));
        }
        if w.int64 && !self.limits.int64 {
            return Err(refused(step, "the adapter has no 64-bit integers"));
        }
        let key = *blake3::hash(w.text.as_bytes()).as_bytes();
        let mut known = self
            .pipelines
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(p) = known.get(&key) {
            return Ok(p.clone());
        }
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let module = self
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(step),
                source: wgpu::ShaderSource::Wgsl(w.text.as_str().into()),
            });
        let p = self
            .device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(step),
                layout: Some(&self.layout),
                module: &module,
                entry_point: Some(w.entry),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: &[],
                    zero_initialize_workgroup_memory: false,
                },
                cache: None,
            });
        if let Some(e) = wait(scope.pop()) {
            return Err(refused(step, format!("its shader is refused: {e}")));
        }
        let p = Arc::new(p);
        known.insert(key, p.clone());
        Ok(p)
    }

    /// Writes `bytes` to `at` (a multiple of 4) of `buffer`, padded to whole words.
    pub fn write(&self, buffer: &wgpu::Buffer, at: u64, bytes: &[u8]) {
        let whole = bytes.len() / 4 * 4;
        if whole > 0 {
            self.queue.write_buffer(buffer, at, &bytes[..whole]);
        }
        if whole < bytes.len() {
            let mut last = [0; 4];
            last[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
            self.queue.write_buffer(buffer, at + whole as u64, &last);
        }
    }

    /// Hands over what was recorded, which has so many tasks, perhaps with what others recorded.
    pub fn submit(&self, encoder: wgpu::CommandEncoder, tasks: u32) {
        let submit = |list| {
            let index = self.queue.submit::<Vec<wgpu::CommandBuffer>>(list);
            let mut handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
            *handed = Some(index);
        };
        self.ring.run(vec![(encoder.finish(), tasks)], &submit);
        if let Some(tell) = &self.tell {
            tell();
        }
    }

    /// What was handed over last, by anybody.
    pub fn handed(&self) -> Option<wgpu::SubmissionIndex> {
        let handed = self.handed.lock();
        handed.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until all up to a submission is done, the last one where none is named.
    pub fn settle(&self, last: Option<wgpu::SubmissionIndex>) -> Result<(), DeviceError> {
        let wait = wgpu::PollType::Wait {
            submission_index: last,
            timeout: None,
        };
        let done = self.device.poll(wait);
        done.map_err(|e| refused("request", format!("the GPU does not get on: {e}")))?;
        self.sound()
    }

    /// Waits until everything handed over is done, and maps the first `bytes` of `staging` for `f`.
    pub fn read<T>(
        &self,
        staging: &wgpu::Buffer,
        bytes: u64,
        f: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, DeviceError> {
        let (tell, told) = mpsc::channel();
        let bytes = bytes.max(4).next_multiple_of(4);
        staging.map_async(wgpu::MapMode::Read, 0..bytes, move |r| {
            // Nobody listens after an error below.
            let _ = tell.send(r);
        });
        let lost = |why: String| refused("results", format!("the GPU gave nothing back: {why}"));
        self.device
            .poll(wgpu::PollType::wait_indefinitely())
            .map_err(|e| lost(e.to_string()))?;
        self.sound()?;
        // The work is done, but the callback may be in the hands of another caller that asked the
        // device at the same time and has not come to run it yet.
        told.recv_timeout(CALLBACK)
            .map_err(|_| lost("its memory was never mapped".into()))?
            .map_err(|e| lost(e.to_string()))?;
        let out = {
            let view = staging
                .get_mapped_range(0..bytes)
                .map_err(|e| lost(e.to_string()))?;
            f(&view)
        };
        staging.unmap();
        Ok(out)
    }

    /// An error if something went wrong that nobody waited for.
    pub fn sound(&self) -> Result<(), DeviceError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failed {
            Some(why) => Err(refused("request", why.clone())),
            None => Ok(()),
        }
    }
}

/// Tasks that one submission carries at most when nothing else is said: a driver that is not asked for
/// too much at once lets others have their turn.
pub(crate) const MOST_TASKS: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whichever caller asks the device runs the callbacks of all.
    #[test]
    fn many_callers_read_at_once() {
        let gpu = match Gpu::open(None) {
            Ok(gpu) => gpu,
            Err(e) => return testing::skip("webgpu: reading", &e.to_string()),
        };
        std::thread::scope(|scope| {
            for caller in 0..8u8 {
                let gpu = &gpu;
                scope.spawn(move || {
                    let from = gpu.storage(ALIGN, "test").unwrap();
                    let to = gpu.staging(ALIGN).unwrap();
                    for n in 0..300u32 {
                        let sent = [caller, n as u8, (n >> 8) as u8, 7];
                        gpu.write(&from, 0, &sent);
                        let mut encoder = gpu.device.create_command_encoder(&Default::default());
                        encoder.copy_buffer_to_buffer(&from, 0, &to, 0, ALIGN);
                        gpu.submit(encoder, 1);
                        let got = gpu.read(&to, 4, <[u8]>::to_vec).unwrap();
                        assert_eq!(got, sent, "caller {caller}, request {n}");
                    }
                });
            }
        });
    }
}
