"""Recipes: equal bytes with a local run, also where a worker is killed in the middle."""

import importlib.util
import os
import pathlib
import shutil
import signal
import sys
import threading
import time

import nightmill as nm
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "datasets" / "support"
RECIPES = pathlib.Path(__file__).resolve().parents[1] / "recipes"
TABLES = ["traces", "scores", "sessions", "attention", "carried"]
SETTINGS = {"buckets": 12, "no_cache": True, "report": False}


def recipe(name):
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    out = tmp_path_factory.mktemp("here") / "run"
    nm.score([SAMPLE], out, **SETTINGS)
    return out


def assert_equal(here, there):
    for table in TABLES:
        files = sorted(file.name for file in (here / table).glob("*.parquet"))
        assert files == sorted(file.name for file in (there / table).glob("*.parquet"))
        for name in files:
            assert (here / table / name).read_bytes() == (there / table / name).read_bytes(), name


def killer(folder, is_worker):
    """Kills a worker process as soon as some buckets are done; tells whether it did."""
    killed = []

    def work():
        for _ in range(6000):
            time.sleep(0.01)
            if len(list(folder.glob(".run.nightmill-partial-*/work/buckets/0*.json"))) < 2:
                continue
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                except OSError:
                    continue
                if is_worker(int(process.name), command):
                    os.kill(int(process.name), signal.SIGKILL)
                    killed.append(command)
                    return
            return

    threading.Thread(target=work, daemon=True).start()
    return killed


@pytest.fixture(scope="module")
def spark():
    if shutil.which("java") is None:
        pytest.skip("no java")
    pyspark = pytest.importorskip("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = pyspark.SparkSession.builder.master("local[2,4]").appName("nightmill")
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    yield session
    session.stop()


def test_spark(spark, here, tmp_path):
    module = recipe("spark_score")
    nm.score([SAMPLE], tmp_path / "run", exchange=module.on_spark(spark), **SETTINGS)
    assert_equal(here, tmp_path / "run")


def test_spark_with_a_worker_killed(spark, here, tmp_path):
    module = recipe("spark_score")
    killed = killer(tmp_path, lambda pid, command: b"pyspark.daemon" in command or b"pyspark/daemon" in command)
    nm.score([SAMPLE], tmp_path / "run", exchange=module.on_spark(spark), **SETTINGS)
    assert killed, "no worker was found"
    assert_equal(here, tmp_path / "run")


@pytest.fixture(scope="module")
def actors():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=4, include_dashboard=False, ignore_reinit_error=True, _node_ip_address="127.0.0.1")
    yield ray
    ray.shutdown()


def test_ray(actors, here, tmp_path):
    module = recipe("ray_score")
    nm.score([SAMPLE], tmp_path / "run", exchange=module.on_ray(1), **SETTINGS)
    assert_equal(here, tmp_path / "run")


def test_ray_with_a_worker_killed(actors, here, tmp_path):
    module = recipe("ray_score")
    killed = killer(tmp_path, lambda pid, command: command.startswith(b"ray::MapWorker(MapBatches(Score))"))
    nm.score([SAMPLE], tmp_path / "run", exchange=module.on_ray(1), **SETTINGS)
    assert killed, "no worker was found"
    assert_equal(here, tmp_path / "run")
