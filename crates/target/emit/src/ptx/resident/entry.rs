//! The entry's text.
use super::{Abi, Idle, PARAMS, ResidentShape};

/// Name of the entry.
pub(super) const NAME: &str = "resident";
/// Bytes of the entry's shared memory for commands: two, used in turn, whether to leave at once, and which
/// request was called off.
const COMMANDS: u32 = 32;
/// Bytes of the records of steps and waits of which a worker keeps a copy in shared memory, so that it does
/// not go to L2 for each word: whoever acquires a counter empties the SM's L1.
const KEPT: u32 = 6 << 10;
/// A worker's polls with the shortest pause, of a counter and for a request. There are hundreds of workers, and
/// all look at one place of L2.
const EAGER: u32 = 64;
const EAGER_IDLE: u32 = 1024;

/// Bytes of records that workers keep beside `shared` bytes of their bodies, of `most` that a CTA may have: all,
/// or none where there is no room.
pub(super) fn record_bytes(most: u32, shared: u32) -> u32 {
    match shared.saturating_add(KEPT + COMMANDS) <= most {
        true => KEPT,
        false => 0,
    }
}

/// Bytes of the entry's own shared memory where it keeps `kept` bytes of records.
pub(super) fn static_shared(kept: u32) -> u32 {
    COMMANDS + kept.max(16)
}

/// Shortest pause, in nanoseconds.
const PAUSE: u32 = 32;

/// Waits before the next poll: `spins` polls at once, then pauses that double up to a cap.
fn pause(label: &str, idle: Idle) -> String {
    let Idle { spins, pause_ns } = idle;
    format!(
        "	setp.lt.u32 %p, %idle, {spins};
	@%p add.u32 %idle, %idle, 1;
	@%p bra {label};
	nanosleep.u32 %ns;
	shl.b32 %ns, %ns, 1;
	min.u32 %ns, %ns, {};
	bra {label};\n",
        pause_ns.max(PAUSE)
    )
}

/// The same for one of many, who all look at one place of L2: none polls at once, and the pauses of the first
/// `spins` polls stay short.
fn pauses(label: &str, idle: Idle) -> String {
    let Idle { spins, pause_ns } = idle;
    format!(
        "	nanosleep.u32 %ns;
	setp.lt.u32 %p, %idle, {spins};
	@%p add.u32 %idle, %idle, 1;
	@%p bra {label};
	shl.b32 %ns, %ns, 1;
	min.u32 %ns, %ns, {};
	bra {label};\n",
        pause_ns.max(PAUSE)
    )
}

/// The entry for bodies of so many threads each.
pub(super) fn entry(
    bodies: &[u32],
    (shape, kept): (&ResidentShape, u32),
    abi: &Abi,
    idle: Idle,
) -> String {
    let mut out = head(shape, kept);
    out += &dispatcher(shape, abi, idle);
    out += &worker((shape, kept), abi, idle);
    out += &waits(abi, idle);
    out += &run(bodies, shape, abi);
    out += &done(abi);
    out + "}\n"
}

fn head(shape: &ResidentShape, kept: u32) -> String {
    let list: Vec<String> = PARAMS
        .iter()
        .map(|p| format!("\t.param .u64 {p}"))
        .collect();
    let mut out = format!(
        ".visible .entry {NAME}(\n{}\n)\n.reqntid {}, 1, 1\n.maxnreg {}\n{{\n",
        list.join(",\n"),
        shape.threads,
        shape.registers
    );
    out += &format!(
        "	.shared .align 16 .b8 commands[{COMMANDS}];\n	.shared .align 16 .b8 records[{}];\n",
        kept.max(16)
    );
    out += "	.reg .pred %p, %q, %one, %kept, %timed;
	.reg .b32 %t, %cta, %seq, %flip, %command, %cmd, %idle, %ns, %stop, %ticket, %want, %low, %high, %slot, %r1, %r2, %r3, %r4;
	.reg .b32 %w, %workers, %tasks, %turn, %steps, %s, %turns, %local, %epoch, %patience;
	.reg .b32 %offs, %called, %n, %kind, %group, %earlier, %from, %to, %c, %goal, %seen, %polls, %eager, %kinds, %met, %count;
	.reg .b64 %table, %ring, %feed, %slots, %payloads, %status, %slot_bytes, %payload_bytes, %zero_to, %base, %step, %wait, %record, %x, %y, %i, %word;
	ld.param.u64 %ring, [ring];
	ld.param.u64 %feed, [feed];
	ld.param.u64 %slots, [slots];
	ld.param.u64 %payloads, [payloads];
	ld.param.u64 %status, [status];
	ld.param.u64 %slot_bytes, [slot_bytes];
	ld.param.u64 %payload_bytes, [payload_bytes];
	ld.param.u64 %zero_to, [zero_to];
	ld.param.u64 %x, [first];
	cvt.u32.u64 %seq, %x;
	ld.param.u64 %x, [offs];
	cvt.u32.u64 %offs, %x;
	ld.param.u64 %x, [epoch];
	cvt.u32.u64 %epoch, %x;
	ld.param.u64 %x, [patience];
	cvt.u32.u64 %patience, %x;
	cvta.to.global.u64 %ring, %ring;
	cvta.to.global.u64 %feed, %feed;
	cvta.to.global.u64 %slots, %slots;
	cvta.to.global.u64 %payloads, %payloads;
	cvta.to.global.u64 %status, %status;
	mov.u32 %t, %tid.x;
	mov.u32 %cta, %ctaid.x;
	mov.u32 %workers, %nctaid.x;
	sub.u32 %workers, %workers, 1;
	mov.u32 %command, commands;
	mov.u32 %flip, 0;
	mov.u32 %count, 0;
	setp.eq.u32 %one, %t, 0;
	@%one st.shared.u32 [%command+16], 0;
	setp.ne.u32 %p, %cta, 0;
";
    // Late is who has polled on behind the eager ones.
    out += &format!(
        "	shr.u32 %eager, %patience, 1;\n	min.u32 %eager, %eager, {EAGER};\n	@%p bra WORKER;\n"
    );
    out
}

fn dispatcher(shape: &ResidentShape, abi: &Abi, idle: Idle) -> String {
    [
        looks_for_tickets(abi, idle),
        calls_off(abi),
        takes_ticket(abi),
        fills_slot(shape, abi),
        passes_on(abi),
    ]
    .concat()
}

/// Looks for the next ticket, for requests that were called off, and for the stop word.
fn looks_for_tickets(abi: &Abi, idle: Idle) -> String {
    let h = &abi.header;
    let mask = abi.capacity - 1;
    format!(
        "	// The dispatcher: says that it is there, then takes tickets.
	shl.b32 %r1, %epoch, 1;
	add.u32 %r2, %r1, 1;
	@%one st.release.sys.global.u32 [%ring+{state}], %r2;
DISPATCH:
	xor.b32 %flip, %flip, 8;
	add.u32 %cmd, %command, %flip;
	@!%one bra DISPATCH_SHARE;
	and.b32 %r1, %seq, {mask};
	mul.wide.u32 %y, %r1, 4;
	add.u64 %y, %y, %ring;
	and.b32 %want, %seq, 65535;
	mov.u32 %idle, 0;
	mov.u32 %ns, {PAUSE};
DISPATCH_POLL:
	ld.relaxed.sys.global.u32 %stop, [%ring+{stop}];
	ld.relaxed.sys.global.u32 %called, [%ring+{count}];
	ld.acquire.sys.global.u32 %ticket, [%y+{tickets}];
	setp.eq.u32 %p, %stop, 2;
	@%p bra DISPATCH_LEAVE;
	setp.ne.u32 %p, %called, %offs;
	@%p bra DISPATCH_OFF;
DISPATCH_LOOK:
	shr.u32 %r1, %ticket, 16;
	setp.eq.u32 %p, %r1, %want;
	@%p bra DISPATCH_FOUND;
	setp.ne.u32 %p, %stop, 0;
	@%p bra DISPATCH_STOP;
{pause}",
        state = h.state,
        stop = h.stop,
        count = h.offs,
        tickets = h.tickets,
        pause = pause("DISPATCH_POLL", idle),
    )
}

/// Requests that were called off are said to be in their slots.
fn calls_off(abi: &Abi) -> String {
    let h = &abi.header;
    let slot = &abi.slot;
    let mask = abi.capacity - 1;
    format!(
        "DISPATCH_OFF:
	// Requests were called off: the workers read so in their slots. The list holds the last ones.
	sub.u32 %r1, %called, %offs;
	setp.le.u32 %p, %r1, {capacity};
	@!%p sub.u32 %offs, %called, {capacity};
	fence.acq_rel.sys;
	and.b32 %r1, %offs, {mask};
	mul.wide.u32 %x, %r1, 4;
	add.u64 %x, %x, %ring;
	ld.relaxed.sys.global.u32 %r2, [%x+{offs}];
	// One that is not taken yet has its turn then: its ticket was there first.
	sub.u32 %r1, %r2, %seq;
	setp.ge.s32 %p, %r1, 0;
	@%p bra DISPATCH_LOOK;
	add.u32 %offs, %offs, 1;
	and.b32 %r1, %r2, {mask};
	mul.wide.u32 %x, %r1, 4;
	add.u64 %x, %x, %ring;
	ld.relaxed.sys.global.u32 %r3, [%x+{tickets}];
	// Its entry may have another ticket, when it was answered before anybody looked.
	shr.u32 %r1, %r3, 16;
	and.b32 %r4, %r2, 65535;
	setp.ne.u32 %p, %r1, %r4;
	@%p bra DISPATCH_POLL;
	shr.u32 %r3, %r3, 1;
	and.b32 %r3, %r3, 2047;
	cvt.u64.u32 %x, %r3;
	mad.lo.u64 %x, %x, %slot_bytes, %slots;
	st.relaxed.gpu.global.u32 [%x+{off}], %r2;
	bra DISPATCH_POLL;
",
        offs = abi.offs,
        capacity = abi.capacity,
        tickets = h.tickets,
        off = slot.off,
    )
}

/// What is found goes to all threads; a ticket of another epoch, or the stop word, is the end.
fn takes_ticket(abi: &Abi) -> String {
    let h = &abi.header;
    format!(
        "DISPATCH_STOP:
	// A ticket that was there before the stop word must not be missed.
	fence.acq_rel.sys;
	ld.acquire.sys.global.u32 %ticket, [%y+{tickets}];
	shr.u32 %r1, %ticket, 16;
	setp.eq.u32 %p, %r1, %want;
	@%p bra DISPATCH_FOUND;
DISPATCH_LEAVE:
	mov.u32 %low, -1;
	bra DISPATCH_PUT;
DISPATCH_FOUND:
	// A ticket of another epoch is for the kernel that comes next.
	shr.u32 %r1, %ticket, 12;
	xor.b32 %r1, %r1, %epoch;
	and.b32 %r1, %r1, 15;
	setp.ne.u32 %p, %r1, 0;
	@%p bra DISPATCH_LEAVE;
	and.b32 %low, %ticket, 4095;
DISPATCH_PUT:
	st.shared.u32 [%cmd], %low;
",
        tickets = h.tickets,
    )
}

/// The slot gets fresh tables, or keeps its own with faults cleared.
fn fills_slot(shape: &ResidentShape, abi: &Abi) -> String {
    let slot = &abi.slot;
    let wide = 16 * shape.threads;
    let narrow = 4 * shape.threads;
    format!(
        "DISPATCH_SHARE:
	bar.sync 0;
	ld.shared.u32 %low, [%cmd];
	setp.eq.s32 %p, %low, -1;
	@%p bra DISPATCH_END;
	shr.u32 %slot, %low, 1;
	cvt.u64.u32 %x, %slot;
	mad.lo.u64 %base, %x, %slot_bytes, %slots;
	and.b32 %r1, %low, 1;
	setp.eq.u32 %kept, %r1, 0;
	@%kept bra DISPATCH_KEPT;
	// Fresh tables; counters begin again.
	mad.lo.u64 %word, %x, %payload_bytes, %payloads;
	mul.wide.u32 %i, %t, 16;
DISPATCH_COPY:
	setp.ge.u64 %p, %i, %payload_bytes;
	@%p bra DISPATCH_COPIED;
	add.u64 %y, %word, %i;
	ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%y];
	add.u64 %y, %base, %i;
	st.global.v4.u32 [%y+{payload}], {{%r1, %r2, %r3, %r4}};
	add.u64 %i, %i, {wide};
	bra DISPATCH_COPY;
DISPATCH_COPIED:
	ld.param.u64 %i, [zero_from];
	bra DISPATCH_ZERO;
DISPATCH_KEPT:
	ld.param.u64 %i, [fault_from];
DISPATCH_ZERO:
	mul.wide.u32 %y, %t, 4;
	add.u64 %i, %i, %y;
DISPATCH_ZEROS:
	setp.ge.u64 %p, %i, %zero_to;
	@%p bra DISPATCH_ZEROED;
	add.u64 %y, %base, %i;
	st.global.u32 [%y], 0;
	add.u64 %i, %i, {narrow};
	bra DISPATCH_ZEROS;
",
        payload = slot.payload,
    )
}

/// The request is passed on to the workers.
fn passes_on(abi: &Abi) -> String {
    let h = &abi.header;
    let slot = &abi.slot;
    let feed_mask = 2 * abi.capacity - 1;
    format!(
        "DISPATCH_ZEROED:
	bar.sync 0;
	@!%one bra DISPATCH_NEXT;
	mov.u32 %turn, 0;
	@%kept ld.global.u32 %turn, [%base+{turn}];
	ld.global.u32 %tasks, [%base+{tasks}];
	mov.u64 %x, %globaltimer;
	st.global.u64 [%base+{begin}], %x;
	st.global.u32 [%base+{error}], 0;
	not.b32 %r1, %seq;
	st.relaxed.gpu.global.u32 [%base+{off}], %r1;
	add.u32 %turn, %turn, 1;
	st.global.u32 [%base+{turn}], %turn;
	min.u32 %tasks, %tasks, 2097151;
	shl.b32 %slot, %slot, 21;
	or.b32 %low, %slot, %tasks;
	mov.b64 %word, {{%low, %seq}};
	and.b32 %r1, %seq, {feed_mask};
	mul.wide.u32 %y, %r1, 8;
	add.u64 %y, %y, %feed;
	st.release.gpu.global.u64 [%y], %word;
DISPATCH_NEXT:
	add.u32 %seq, %seq, 1;
	bra DISPATCH;
DISPATCH_END:
	@!%one bra END;
	mov.b64 %word, {{%low, %seq}};
	and.b32 %r1, %seq, {feed_mask};
	mul.wide.u32 %y, %r1, 8;
	add.u64 %y, %y, %feed;
	st.release.gpu.global.u64 [%y], %word;
	st.relaxed.sys.global.u32 [%ring+{next}], %seq;
	shl.b32 %r1, %epoch, 1;
	st.release.sys.global.u32 [%ring+{state}], %r1;
END:
	ret;
",
        state = h.state,
        next = h.next,
        turn = slot.turn,
        error = slot.error,
        off = slot.off,
        begin = slot.begin,
        tasks = slot.payload + slot.tasks,
    )
}

fn worker((shape, kept): (&ResidentShape, u32), abi: &Abi, idle: Idle) -> String {
    let (slot, st) = (&abi.slot, &abi.status);
    let wide = 16 * shape.threads;
    format!(
        "WORKER:
	sub.u32 %w, %cta, 1;
	mul.wide.u32 %x, %w, {status_bytes};
	add.u64 %status, %status, %x;
WORKER_NEXT:
	xor.b32 %flip, %flip, 8;
	add.u32 %cmd, %command, %flip;
	@!%one bra WORKER_SHARE;
	st.relaxed.sys.global.u32 [%status+{phase}], 0;
	mov.u32 %idle, 0;
	mov.u32 %ns, {PAUSE};
WORKER_POLL:
	and.b32 %r1, %seq, {feed_mask};
	mul.wide.u32 %y, %r1, 8;
	add.u64 %y, %y, %feed;
	ld.acquire.gpu.global.u64 %word, [%y];
	mov.b64 {{%low, %high}}, %word;
	sub.u32 %r1, %high, %seq;
	setp.eq.u32 %p, %r1, 0;
	@%p bra WORKER_FOUND;
	setp.gt.s32 %p, %r1, 0;
	@%p bra WORKER_MISSED;
WORKER_LOOK:
	// Whoever acquires empties the L1 of its SM, out of which others compute: looks without.
	ld.relaxed.gpu.global.u64 %word, [%y];
	mov.b64 {{%low, %high}}, %word;
	sub.u32 %r1, %high, %seq;
	setp.ge.s32 %p, %r1, 0;
	@%p bra WORKER_POLL;
{pause}WORKER_MISSED:
	// Requests without a task for this CTA went by; what is that old is answered.
	sub.u32 %seq, %high, {capacity};
	bra WORKER_POLL;
WORKER_FOUND:
	st.shared.u32 [%cmd], %low;
	st.shared.u32 [%cmd+4], %seq;
WORKER_SHARE:
	bar.sync 0;
	ld.shared.u32 %low, [%cmd];
	ld.shared.u32 %seq, [%cmd+4];
	setp.eq.s32 %p, %low, -1;
	@%p bra END;
	and.b32 %tasks, %low, 2097151;
	shr.u32 %slot, %low, 21;
	setp.ge.u32 %p, %w, %tasks;
	@%p bra WORKER_PASS;
	@%one st.relaxed.sys.global.u32 [%status+{seq}], %seq;
	cvt.u64.u32 %x, %slot;
	mad.lo.u64 %base, %x, %slot_bytes, %slots;
	ld.global.u32 %turn, [%base+{turn}];
	ld.global.u32 %steps, [%base+{steps}];
	// One thread tells the time, of requests that have a place for it.
	ld.global.u64 %x, [%base+{times}];
	ld.global.u32 %r1, [%base+{records}];
	setp.ne.u64 %timed, %x, 0;
	and.pred %timed, %timed, %one;
	// Steps and waits are read from a copy where that is short enough. Offsets in them count from the slot.
	cvta.global.u64 %table, %base;
	setp.gt.u32 %p, %r1, {kept};
	@%p bra WORKER_BEGIN;
	cvt.u64.u32 %word, %r1;
	mov.u64 %table, records;
	mul.wide.u32 %i, %t, 16;
WORKER_COPY:
	setp.ge.u64 %p, %i, %word;
	@%p bra WORKER_COPIED;
	add.u64 %x, %base, %i;
	ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%x+{table}];
	add.u64 %x, %table, %i;
	st.shared.v4.u32 [%x], {{%r1, %r2, %r3, %r4}};
	add.u64 %i, %i, {wide};
	bra WORKER_COPY;
WORKER_COPIED:
	bar.sync 0;
	cvta.shared.u64 %table, %table;
	sub.u64 %table, %table, {table};
WORKER_BEGIN:
	add.u64 %step, %table, {table};
	mov.u32 %s, 0;
",
        status_bytes = st.bytes,
        phase = st.phase,
        seq = st.seq,
        feed_mask = 2 * abi.capacity - 1,
        capacity = abi.capacity,
        turn = slot.turn,
        steps = slot.payload + slot.steps,
        times = slot.payload + slot.times,
        records = slot.payload + slot.records,
        table = slot.payload + slot.table,
        pause = pauses("WORKER_LOOK", Idle { spins: EAGER_IDLE.min(idle.spins), ..idle }),
    )
}

/// The first warp waits, each lane for counters of its own.
fn waits(abi: &Abi, idle: Idle) -> String {
    [next_task(abi), awaited(abi), polls(abi, idle), met(abi)].concat()
}

/// The worker's next task of the step; it waits for nothing where the step's waits are met.
fn next_task(abi: &Abi) -> String {
    let step = &abi.step;
    let st = &abi.status;
    format!(
        "STEP:
	setp.ge.u32 %p, %s, %steps;
	@%p bra ARRIVE;
	mov.u32 %kinds, 0;
	mov.u32 %met, 0;
	ld.u32 %turns, [%step+{turns}];
	ld.u32 %r1, [%step+{first}];
	rem.u32 %r1, %r1, %workers;
	add.u32 %local, %w, %workers;
	sub.u32 %local, %local, %r1;
	setp.ge.u32 %p, %local, %workers;
	@%p sub.u32 %local, %local, %workers;
TASK:
	setp.ge.u32 %p, %local, %turns;
	@%p bra STEP_NEXT;
	@%one st.relaxed.sys.global.u32 [%status+{st_step}], %s;
	@%one st.relaxed.sys.global.u32 [%status+{st_task}], %local;
	@%one st.relaxed.sys.global.u32 [%status+{phase}], 1;
	setp.ge.u32 %p, %t, 32;
	@%p bra READY;
	// What waits for whole steps waits once.
	setp.ne.u32 %p, %met, 0;
	@%p bra READY;
	ld.u32 %n, [%step+{wait_count}];
	ld.u32 %r1, [%step+{waits}];
	cvt.u64.u32 %x, %r1;
	add.u64 %wait, %table, %x;
",
        turns = step.turns,
        first = step.first,
        wait_count = step.wait_count,
        waits = step.waits,
        st_step = st.step,
        st_task = st.task,
        phase = st.phase,
    )
}

/// The counters that a wait of the task is for.
fn awaited(abi: &Abi) -> String {
    let wait = &abi.wait;
    let m = |i: u32| abi.wait.map + 4 * i;
    format!(
        "WAIT:
	setp.eq.u32 %p, %n, 0;
	@%p bra WAITED;
	ld.u32 %kind, [%wait+{kind}];
	or.b32 %kinds, %kinds, %kind;
	ld.u32 %group, [%wait+{group}];
	ld.u32 %earlier, [%wait+{earlier}];
	mov.u32 %from, 0;
	mov.b32 %to, %earlier;
	setp.eq.u32 %p, %kind, 0;
	@%p bra WAIT_RANGE;
	ld.u32 %r1, [%wait+{m0}];
	setp.eq.u32 %p, %kind, 1;
	@!%p bra WAIT_SPANS;
	mul.lo.u32 %from, %local, %r1;
	add.u32 %to, %from, %r1;
	bra WAIT_CLAMP;
WAIT_SPANS:
	ld.u32 %r2, [%wait+{m1}];
	div.u32 %r1, %local, %r1;
	mul.lo.u32 %r1, %r1, %r2;
	add.u32 %to, %r1, %r2;
	ld.u32 %r3, [%wait+{m2}];
	sub.s32 %from, %r1, %r3;
	max.s32 %from, %from, 0;
	ld.u32 %r3, [%wait+{m3}];
	add.s32 %to, %to, %r3;
	max.s32 %to, %to, 0;
	ld.u32 %r3, [%wait+{m5}];
	div.u32 %from, %from, %r3;
	add.u32 %to, %to, %r3;
	sub.u32 %to, %to, 1;
	div.u32 %to, %to, %r3;
	ld.u32 %r3, [%wait+{m4}];
	mul.lo.u32 %from, %from, %r3;
	mul.lo.u32 %to, %to, %r3;
WAIT_CLAMP:
	// One task at least: what it waited for is passed on.
	sub.u32 %r1, %earlier, 1;
	min.u32 %from, %from, %r1;
	min.u32 %to, %to, %earlier;
	add.u32 %r1, %from, 1;
	max.u32 %to, %to, %r1;
WAIT_RANGE:
	div.u32 %c, %from, %group;
	add.u32 %c, %c, %t;
	sub.u32 %to, %to, 1;
	div.u32 %to, %to, %group;
",
        kind = wait.kind,
        group = wait.group,
        earlier = wait.turns,
        m0 = m(0),
        m1 = m(1),
        m2 = m(2),
        m3 = m(3),
        m4 = m(4),
        m5 = m(5),
    )
}

/// Each lane looks at its counters until they are there, and says so where that takes long.
fn polls(abi: &Abi, idle: Idle) -> String {
    let wait = &abi.wait;
    let st = &abi.status;
    format!(
        "WAIT_LANE:
	setp.gt.u32 %p, %c, %to;
	@%p bra WAIT_NEXT;
	mul.lo.u32 %r1, %c, %group;
	sub.u32 %r1, %earlier, %r1;
	min.u32 %r1, %r1, %group;
	mul.lo.u32 %goal, %r1, %turn;
	ld.u32 %r1, [%wait+{counters}];
	shl.b32 %r2, %c, 2;
	add.u32 %r4, %r1, %r2;
	cvt.u64.u32 %x, %r4;
	add.u64 %y, %base, %x;
	mov.u32 %polls, 0;
	mov.u32 %ns, {PAUSE};
WAIT_LOOK:
	// Acquired is once, behind all of them.
	ld.relaxed.gpu.global.u32 %seen, [%y];
	sub.u32 %r1, %seen, %goal;
	setp.ge.s32 %p, %r1, 0;
	@%p bra WAIT_MET;
	setp.lt.u32 %p, %polls, %eager;
	@%p add.u32 %polls, %polls, 1;
	@%p nanosleep.u32 {PAUSE};
	@%p bra WAIT_LOOK;
	setp.lt.u32 %p, %polls, %patience;
	@!%p bra WAIT_PAUSE;
	add.u32 %polls, %polls, 1;
	setp.lt.u32 %p, %polls, %patience;
	@%p bra WAIT_PAUSE;
	// Late: says for what it waits.
	st.relaxed.sys.global.u32 [%status+{counter}], %r4;
	st.relaxed.sys.global.u32 [%status+{st_goal}], %goal;
	st.relaxed.sys.global.u32 [%status+{st_seen}], %seen;
	st.relaxed.sys.global.u32 [%status+{phase}], 2;
	st.relaxed.sys.global.u32 [%ring+{late}], 1;
WAIT_PAUSE:
	nanosleep.u32 %ns;
	shl.b32 %ns, %ns, 1;
	min.u32 %ns, %ns, {pause_ns};
	setp.lt.u32 %p, %polls, %patience;
	@%p bra WAIT_LOOK;
	// Who is late asks whether to leave.
	ld.relaxed.sys.global.u32 %r1, [%ring+{stop}];
	setp.ne.u32 %p, %r1, 2;
	@%p bra WAIT_LOOK;
	st.relaxed.cta.shared.u32 [%command+16], 1;
	bra WAITED;
WAIT_MET:
	add.u32 %c, %c, 32;
	bra WAIT_LANE;
WAIT_NEXT:
	add.u64 %wait, %wait, {wait_bytes};
	sub.u32 %n, %n, 1;
	bra WAIT;
",
        counters = wait.counters,
        wait_bytes = wait.bytes,
        phase = st.phase,
        counter = st.counter,
        st_goal = st.goal,
        st_seen = st.seen,
        late = abi.header.late,
        stop = abi.header.stop,
        pause_ns = idle.pause_ns.max(PAUSE),
    )
}

/// All threads learn that the task may run.
fn met(abi: &Abi) -> String {
    format!(
        "WAITED:
	setp.eq.u32 %p, %kinds, 0;
	selp.u32 %met, 1, 0, %p;
	fence.acq_rel.gpu;
	bar.warp.sync -1;
	// Behind the waits: when a task was left out, so is all that waited for it.
	@%one ld.relaxed.gpu.global.u32 %r1, [%base+{off}];
	@%one st.shared.u32 [%command+20], %r1;
READY:
	bar.sync 0;
	ld.shared.u32 %r1, [%command+16];
	setp.ne.u32 %p, %r1, 0;
	@%p bra END;
	ld.shared.u32 %r1, [%command+20];
	setp.eq.u32 %p, %r1, %seq;
	@%p bra RAN;
",
        off = abi.slot.off,
    )
}

/// Where this worker's times of the step are, and what time it is.
fn now(abi: &Abi) -> String {
    format!(
        "	ld.global.u64 %x, [%base+{}];
	cvta.to.global.u64 %x, %x;
	mad.lo.u32 %r1, %s, %workers, %w;
	mul.wide.u32 %y, %r1, 16;
	add.u64 %x, %x, %y;
	mov.u64 %y, %globaltimer;\n",
        abi.slot.payload + abi.slot.times
    )
}

/// The step's body, by number.
fn run(bodies: &[u32], shape: &ResidentShape, abi: &Abi) -> String {
    let step = &abi.step;
    let mut out = format!(
        "	@!%timed bra STARTED;
	setp.ge.u32 %p, %local, %workers;
	@%p bra STARTED;
{}	st.global.u64 [%x], %y;
STARTED:
	@%one st.relaxed.sys.global.u32 [%status+{}], 3;
	ld.u32 %r1, [%step+{}];
	setp.eq.u32 %p, %r1, 0;
	@%p bra RAN;
	ld.u32 %r1, [%step+{}];
	cvt.u64.u32 %x, %r1;
	add.u64 %record, %base, %x;
	ld.u32 %r1, [%step+{}];
",
        now(abi),
        abi.status.phase,
        step.tasks,
        step.params,
        step.body
    );
    let names: Vec<String> = (0..=bodies.len()).map(|n| format!("BODY_{n}")).collect();
    out += &format!(
        "BODIES: .branchtargets {};\n	brx.idx %r1, BODIES;\n",
        names.join(", ")
    );
    for (n, name) in names.iter().enumerate() {
        out += &format!("{name}:\n");
        let threads = bodies.get(n).copied().unwrap_or(shape.threads);
        if threads < shape.threads {
            out += &format!("	setp.ge.u32 %p, %t, {threads};\n	@%p bra RAN;\n");
        }
        out += &format!("	call body_{n}, (%record, %local);\n");
        if n + 1 < names.len() {
            out += "	bra RAN;\n";
        }
    }
    out
}

fn done(abi: &Abi) -> String {
    [ended(abi), counted(abi), answers(abi)].concat()
}

/// When the task ended, and the fault that it found.
fn ended(abi: &Abi) -> String {
    let step = &abi.step;
    let slot = &abi.slot;
    format!(
        "RAN:
	bar.sync 0;
	@!%one bra RELEASED;
	@!%timed bra TIMED;
{now}	st.global.u64 [%x+8], %y;
TIMED:
	ld.u32 %r1, [%step+{fault}];
	setp.eq.u32 %p, %r1, 0;
	@%p bra RELEASE;
	cvt.u64.u32 %x, %r1;
	add.u64 %x, %base, %x;
	ld.relaxed.gpu.global.u32 %r1, [%x];
	setp.eq.u32 %p, %r1, 0;
	@%p bra RELEASE;
	// The first failed step wins, and of its faults the highest number.
	min.u32 %r2, %s, 4095;
	sub.u32 %r2, 4095, %r2;
	shl.b32 %r2, %r2, 20;
	min.u32 %r1, %r1, 1048575;
	or.b32 %r1, %r1, %r2;
	red.relaxed.gpu.global.max.u32 [%base+{error}], %r1;
",
        now = now(abi),
        fault = step.fault,
        error = slot.error,
    )
}

/// What waits for the task is told.
fn counted(abi: &Abi) -> String {
    let step = &abi.step;
    format!(
        "RELEASE:
	ld.u32 %r1, [%step+{total}];
	ld.u32 %r2, [%step+{groups}];
	// Where nobody waits for some of its tasks, all of this worker's count together.
	setp.eq.u32 %p, %r2, 0;
	@%p add.u32 %count, %count, 1;
	@%p bra RELEASED;
	fence.acq_rel.gpu;
	setp.eq.u32 %p, %r1, 0;
	cvt.u64.u32 %x, %r1;
	add.u64 %x, %base, %x;
	@!%p red.relaxed.gpu.global.add.u32 [%x], 1;
	ld.u32 %r3, [%step+{group}];
	div.u32 %r3, %local, %r3;
	shl.b32 %r3, %r3, 2;
	add.u32 %r3, %r3, %r2;
	cvt.u64.u32 %x, %r3;
	add.u64 %x, %base, %x;
	red.relaxed.gpu.global.add.u32 [%x], 1;
RELEASED:
	add.u32 %local, %local, %workers;
	bra TASK;
STEP_NEXT:
	setp.eq.u32 %p, %count, 0;
	@%p bra STEP_ON;
	ld.u32 %r1, [%step+{total}];
	setp.eq.u32 %p, %r1, 0;
	@%p bra STEP_ON;
	fence.acq_rel.gpu;
	cvt.u64.u32 %x, %r1;
	add.u64 %x, %base, %x;
	red.relaxed.gpu.global.add.u32 [%x], %count;
STEP_ON:
	mov.u32 %count, 0;
	add.u32 %s, %s, 1;
	add.u64 %step, %step, {step_bytes};
	bra STEP;
",
        total = step.total,
        groups = step.groups,
        group = step.group,
        step_bytes = step.bytes,
    )
}

/// The last worker answers the request.
fn answers(abi: &Abi) -> String {
    let slot = &abi.slot;
    let answer = &abi.answer;
    format!(
        "ARRIVE:
	// Warps that are still on their way through the tables must not meet the next request's.
	bar.sync 0;
	@!%one bra WORKER_PASS;
	atom.acq_rel.gpu.global.add.u32 %r1, [%base+{arrived}], 1;
	add.u32 %r1, %r1, 1;
	min.u32 %r2, %workers, %tasks;
	setp.ne.u32 %p, %r1, %r2;
	@%p bra WORKER_PASS;
	// The last one: everybody else is through with this slot.
	st.global.u32 [%base+{arrived}], 0;
	and.b32 %r1, %seq, {mask};
	mul.wide.u32 %y, %r1, {answer_bytes};
	add.u64 %y, %y, %ring;
	ld.relaxed.gpu.global.u32 %r1, [%base+{error}];
	ld.relaxed.gpu.global.u32 %r2, [%base+{off}];
	ld.global.u64 %x, [%base+{begin}];
	mov.u64 %word, %globaltimer;
	st.global.u64 [%y+{a_end}], %word;
	st.global.u32 [%y+{a_error}], %r1;
	setp.eq.u32 %p, %r2, %seq;
	selp.u32 %r2, 1, 0, %p;
	st.global.u32 [%y+{a_off}], %r2;
	st.global.u64 [%y+{a_begin}], %x;
	st.release.sys.global.u32 [%y+{a_seq}], %seq;
WORKER_PASS:
	add.u32 %seq, %seq, 1;
	bra WORKER_NEXT;
",
        error = slot.error,
        arrived = slot.arrived,
        begin = slot.begin,
        mask = abi.capacity - 1,
        answer_bytes = answer.bytes,
        a_error = abi.answers + answer.error,
        off = slot.off,
        a_off = abi.answers + answer.off,
        a_begin = abi.answers + answer.begin,
        a_end = abi.answers + answer.end,
        a_seq = abi.answers + answer.seq,
    )
}
