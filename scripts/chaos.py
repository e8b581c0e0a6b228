"""A cluster whose members are killed, stopped and replaced at random, round after round: its tables must be those of a run
on one machine, byte for byte. The long form of tests/it/cluster.rs.

    python3 scripts/chaos.py NIGHTMILL PATH... [--rounds 20] [--executors 3] [--buckets 64] [--seed 1]

NIGHTMILL is the program, PATH the files to score. Prints a line a round: what was done to whom, when, and what came of it.
"""

import argparse
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TABLES = ["traces", "scores", "sessions", "attention", "carried"]
SILENT_FOR = 8


def bytes_of(run):
    files = sorted(file for table in TABLES for file in (run / table).glob("*.parquet"))
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


class Cluster:
    def __init__(self, program, folder, executors):
        self.program, self.folder, self.number = program, folder, 0
        self.scheduler, self.address = self.start(["scheduler", "--bind", "127.0.0.1:0", "--silent-for", str(SILENT_FOR)])
        self.executors = []
        for _ in range(executors):
            self.add()

    def start(self, args):
        log = open(self.folder / "members.log", "a")
        process = subprocess.Popen([self.program, *args, "-v"], stdout=subprocess.PIPE, stderr=log, text=True)
        line = process.stdout.readline()
        assert line.startswith("listening on "), line
        return process, line.split()[-1]

    def add(self):
        self.number += 1
        work = self.folder / f"work-{self.number}"
        args = ["executor", "--scheduler", self.address, "--slots", "1", "--work-dir", str(work)]
        self.executors.append(self.start(args)[0])

    def end(self):
        for process in [*self.executors, self.scheduler]:
            process.kill()
            process.wait()


def harm(cluster, dice):
    """Does something to the cluster; returns what, and what is to be done later."""
    what = dice.choice(["kill", "kill and replace", "stop", "stop for long", "kill all but one", "kill the scheduler"])
    victim = dice.choice(cluster.executors)
    later = []
    if what.startswith("kill and") or what == "kill":
        victim.kill()
        cluster.executors.remove(victim)
        if what == "kill and replace" or not cluster.executors:
            cluster.add()
    elif what.startswith("stop"):
        victim.send_signal(signal.SIGSTOP)
        seconds = SILENT_FOR * 1.5 if what == "stop for long" else 2
        later.append((time.monotonic() + seconds, lambda: victim.send_signal(signal.SIGCONT)))
    elif what == "kill all but one":
        for other in cluster.executors[1:]:
            other.kill()
        del cluster.executors[1:]
    else:
        cluster.scheduler.kill()
    return what, later


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--executors", type=int, default=3)
    parser.add_argument("--buckets", default="64")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    dice = random.Random(asked.seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nightmill-chaos-"))
    score = [asked.program, "score", *asked.paths, "--no-cache", "--no-report", "--buckets", asked.buckets]
    began = time.monotonic()
    subprocess.run([*score, "--out", folder / "here"], check=True, stdout=subprocess.DEVNULL)
    expected, usual = bytes_of(folder / "here"), time.monotonic() - began
    wrong = 0
    for number in range(asked.rounds):
        cluster = Cluster(asked.program, folder, asked.executors)
        out, told, resumed = folder / "there", [], 0
        command = [*score, "--out", out, "--cluster", cluster.address]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        began, later = time.monotonic(), []
        harms = sorted(dice.uniform(0, usual) for _ in range(dice.randint(1, 2)))
        while run.poll() is None or resumed == 0 and run.returncode != 0:
            now = time.monotonic() - began
            if run.poll() is not None:
                # Broken off: a new cluster goes on with it.
                resumed += 1
                cluster.end()
                cluster, later, harms = Cluster(asked.program, folder, asked.executors), [], []
                command = [*score, "--out", out, "--cluster", cluster.address, "--resume"]
                run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            if harms and now >= harms[0]:
                harms.pop(0)
                what, more = harm(cluster, dice)
                told.append(f"{what} after {now:.1f} s")
                later += more
            for entry in [entry for entry in later if entry[0] <= time.monotonic()]:
                later.remove(entry)
                entry[1]()
            if now > 20 * usual + 300:
                run.kill()
            time.sleep(0.02)
        equal = run.returncode == 0 and bytes_of(out) == expected
        wrong += not equal
        end = "equal" if equal else f"NOT EQUAL (exit code {run.returncode}): {run.stderr.read().decode()[-300:]}"
        again = ", resumed" if resumed else ""
        print(f"{number + 1}: {'; '.join(told) or 'nothing'}{again}: {end}", flush=True)
        cluster.end()
        shutil.rmtree(out, ignore_errors=True)
        for left in folder.glob("work-*"):
            shutil.rmtree(left)
    shutil.rmtree(folder)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
