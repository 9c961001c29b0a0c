"""Chunks of trials as tasks of a Dask cluster. The library says what a chunk is and what becomes of its result."""

import asyncio
import concurrent.futures
import json
import sys
from itertools import islice

from ._native import WarmcoreError, carry_out, identity

# Chunks on their way for each thread of the workers: one runs, the others wait on the worker.
AHEAD = 3
# Seconds until a scheduler must answer, and a first worker be there.
PATIENCE = 60
ANSWERS = 10
# What Dask raises where a connection is no more.
GONE = (OSError, RuntimeError, AttributeError, asyncio.CancelledError, asyncio.TimeoutError, concurrent.futures.CancelledError)


def error(message, advice):
    """What is wrong, as the library says it."""
    made = WarmcoreError(f"{message}\n  help: {advice}")
    made.advice = advice
    return made


def distributed():
    try:
        import distributed as module
    except ImportError as missing:
        raise error(f"Dask is not installed: {missing}", "pip install 'warmcore[dask]'") from missing
    return module


def connect(address):
    """A client of the scheduler at an address."""
    module = distributed()
    try:
        return module.Client(address, timeout=ANSWERS, set_as_default=False)
    except (OSError, ValueError, TypeError, asyncio.TimeoutError) as failed:
        words = f"no Dask scheduler answers at {address} within {ANSWERS} s"
        raise error(words, "start one with `dask scheduler`; it prints its address, such as tcp://HOST:8786") from failed


def refuse_another(worker, theirs, mine):
    if theirs != mine:
        (version, build), (own, own_build) = theirs, mine
        words = f"worker {worker} has version {version} (build {build[:8]}) of warmcore, this is {own} (build {own_build[:8]})"
        raise error(words, "install the same wheel on every worker: results of another may differ")


def run_chunk(chunk, mine):
    """A task, on a worker. The worker may have come after the others were asked."""
    theirs = identity()
    if theirs != mine:
        from distributed import get_worker

        refuse_another(get_worker().address, theirs, mine)
    return carry_out(chunk)


def lost(cause):
    words = f"the Dask scheduler or this client is gone: {cause or repr(cause)}"
    return error(words, "start again: with `out` what came back is taken over")


def workers(client):
    """Threads of all workers, each of this version."""
    module = distributed()
    if not isinstance(client, module.Client):
        raise error(f"{client!r} is no dask.distributed.Client", "make one: Client('tcp://HOST:8786')")
    if client.status != "running":
        raise lost(f"it is {client.status}")
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
        mine = identity()
        for worker, theirs in client.run(identity).items():
            refuse_another(worker, tuple(theirs), mine)
        return sum(client.nthreads().values())
    except ModuleNotFoundError as missing:
        raise error(f"a worker lacks a module: {missing}", "install the same wheel on every worker") from missing
    except (asyncio.TimeoutError, TimeoutError) as late:
        raise error(f"no worker has come within {PATIENCE} s", "start one with `dask worker ADDRESS`") from late
    except GONE as cause:
        raise lost(cause) from cause


def each(client, chunks):
    """Runs chunks, an iterator of (name, text), and yields (name, result) as they come, with a bounded number on their way."""
    module = distributed()
    mine, known, bound = identity(), {}, AHEAD * max(1, sum(client.nthreads().values()))

    def send(name, chunk):
        key = task_key(name)
        known[key] = name
        return client.submit(run_chunk, chunk, mine, key=key, pure=True)

    coming = module.as_completed(loop=client.loop)
    try:
        for name, chunk in islice(chunks, bound):
            coming.add(send(name, chunk))
        for future in coming:
            yield known.pop(future.key), future.result()
            future.release()
            for name, chunk in islice(chunks, 1):
                coming.add(send(name, chunk))
    except module.KilledWorker as killed:
        raise error(str(killed), "a trial ends its workers, by its memory perhaps: run it without a cluster") from killed
    except GONE as cause:
        raise lost(cause) from cause
    except Exception as cause:
        if client.status == "running":
            raise
        raise lost(cause) from cause
    finally:
        # What is on its way needs not be finished.
        if client.status == "running":
            coming.clear()


def task_key(name):
    """A name as a key: Dask's pages put keys together whose words before `-NUMBER` are equal, and cut words at other hyphens."""
    words, trials = name.rsplit("/", 1)
    return f"{words.replace('-', '_')}/{trials}"


def gather(gathering, client, progress=None):
    """Has a library's gathering done by the workers of a client."""
    names, sizes = gathering.names(), gathering.sizes()
    numbers = {name: number for number, name in enumerate(names)}
    chunks = ((name, gathering.chunk(number)) for name, number in numbers.items())
    finished, total = 0, sum(sizes)
    for name, answer in each(client, chunks):
        gathering.take(numbers[name], answer)
        finished += sizes[numbers[name]]
        if progress is not None:
            progress(finished, total)


def relay(address):
    """Chunks from standard input, results to standard output, a line of JSON each: for `warmcore study run --dask`."""

    def say(**words):
        print(json.dumps(words), flush=True)

    try:
        with connect(address) as client:
            say(version=identity()[0], workers=workers(client))
            chunks = ((line["name"], line["chunk"]) for line in map(json.loads, sys.stdin))
            for name, answer in each(client, chunks):
                say(name=name, answer=answer)
    except WarmcoreError as failed:
        say(error=str(failed).split("\n  help: ")[0], advice=failed.advice)
        return 1
    return 0
