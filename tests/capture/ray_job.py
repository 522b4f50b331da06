"""A program for tests: four actors of Ray, each with the wrapper around it: `ray_job.py WAY ALLTRACE OPTION ... -o
DIR`."""

import os
import shlex
import sys
import time
from pathlib import Path

import ray

way, alltrace, *options = sys.argv[1:]
python = shlex.join([*shlex.split(alltrace), "capture", "exec", *options, "--", sys.executable])


@ray.remote(num_cpus=1, max_restarts=1, max_task_retries=1)
class Actor:
    def train(self, rank, dies):
        if way == "later":  # as trainers do that give an actor its rank by a call
            os.environ.update(RANK=str(rank), WORLD_SIZE="4")
        from alltrace.instrument import annotate, steps

        if "torch" in options:
            import torch

            work = torch.ones(100).sum
        else:
            work = float

        with steps() as window:
            for _ in range(5):
                with annotate("work"):
                    work()
                    time.sleep(0.01)
                window.step()
        if dies and not Path("died").exists():
            Path("died").touch()
            os._exit(7)
        return rank

    def leave(self):
        ray.actor.exit_actor()


ray.init(num_cpus=4, include_dashboard=False, _temp_dir=os.environ["RAY_FOLDER"], log_to_driver=False)
shared = {"PYTHONPATH": os.environ["PYTHONPATH"], "ALLTRACE_CACHE_DIR": os.environ["ALLTRACE_CACHE_DIR"]}
actors = []
for rank in range(4):
    own = {} if way == "later" else {"RANK": str(rank), "WORLD_SIZE": "4"}
    own |= {"ALLTRACE_ROLE": "actor" if rank < 2 else "critic"} if way == "roles" else {}
    environment = {"py_executable": python, "env_vars": {**shared, **own}}
    actors.append(Actor.options(runtime_env=environment).remote())
found = ray.get([a.train.remote(rank, way == "dies" and rank == 2) for rank, a in enumerate(actors)])
sys.stdout.write(f"{found}\n")
for actor in actors:
    actor.leave.options(max_task_retries=0).remote()
until = time.monotonic() + 60
want = 5 if way == "dies" else 4
place = Path(options[options.index("-o") + 1])
while time.monotonic() < until and len([*place.glob("*.nsys-rep"), *place.glob("*.gz")]) < want:
    time.sleep(0.2)
time.sleep(0.5)
ray.shutdown()
