"""An urgent model beside a busy one, each in an onnxruntime process of its own:
pair.py URGENT INPUTS BACKGROUND INPUTS THREADS SECONDS RATE CALLERS

Prints five numbers: the urgent model's 99th percentile alone and beside the other in seconds, the busy
model's requests per second alone and beside the other, and the median of an urgent request alone."""
import multiprocessing
import random
import sys
import threading
import time


def session(model, file, threads):
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    made = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    values = numpy.load(file)
    named = {i.name: values[i.name] for i in made.get_inputs()}
    run = lambda: made.run(None, named)
    for _ in range(5):
        run()
    return run


def urgent(model, file, threads, seconds, rate, start, out):
    run = session(model, file, threads)
    luck = random.Random(7)
    due = []
    at = 0.0
    while (at := at + luck.expovariate(rate)) < seconds:
        due.append(at)
    start.wait()
    began = time.monotonic()
    lock = threading.Lock()
    took = []

    def send():
        while True:
            with lock:
                if not due:
                    return
                mine = due.pop(0)
            time.sleep(max(0.0, mine - (time.monotonic() - began)))
            run()
            took.append(time.monotonic() - began - mine)

    senders = [threading.Thread(target=send) for _ in range(4)]
    [s.start() for s in senders]
    [s.join() for s in senders]
    took.sort()
    out.put((took[min(len(took) - 1, int(0.99 * len(took)))], took[len(took) // 2]))


def busy(model, file, threads, seconds, callers, start, out):
    run = session(model, file, threads)
    start.wait()
    began = time.monotonic()
    done = [0] * callers

    def call(i):
        while time.monotonic() - began < seconds:
            run()
            done[i] += 1

    all_callers = [threading.Thread(target=call, args=(i,)) for i in range(callers)]
    [c.start() for c in all_callers]
    [c.join() for c in all_callers]
    out.put(sum(done) / seconds)


def together(*jobs):
    start = multiprocessing.Barrier(len(jobs))
    outs = [multiprocessing.Queue() for _ in jobs]
    running = [
        multiprocessing.Process(target=f, args=(*args, start, out))
        for (f, *args), out in zip(jobs, outs)
    ]
    [r.start() for r in running]
    results = [out.get() for out in outs]
    [r.join() for r in running]
    return results


def main():
    first, x, second, y, threads, seconds, rate, callers = sys.argv[1:]
    threads, seconds, callers = int(threads), float(seconds), int(callers)
    one = (urgent, first, x, threads, seconds, float(rate))
    other = (busy, second, y, threads, seconds, callers)
    (alone, median), = together(one)
    most, = together(other)
    (beside, _), left = together(one, other)
    print(alone, beside, most, left, median)


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
