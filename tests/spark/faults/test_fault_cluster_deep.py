"""A standalone cluster of two workers: the same result, also when workers are killed."""

import pytest
from faulty import MakeScene, Scene
from standalone import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.deep]

KILLS = 8


def on(cluster: Cluster, scene: MakeScene, number: int) -> Scene:
    here = scene(number, master=cluster.url)
    here.env |= cluster.env
    return here


def test_a_merge_on_a_cluster_gives_the_truth(scene: MakeScene, cluster: Cluster) -> None:
    here = on(cluster, scene, 300)
    here.give(here.waiting)
    here.finish()
    ran = [list(work.glob("app-*/*")) for work in cluster.root.glob("work-*")]
    assert all(ran), "each worker has run an executor"


@pytest.mark.parametrize("number", range(400, 404))
def test_kills_of_workers(scene: MakeScene, cluster: Cluster, number: int) -> None:
    here = on(cluster, scene, number)
    session = here.watch()
    here.until_trigger(session, 0)
    for left in range(KILLS, 0, -1):
        before = here.last("commits")
        here.live(session, here.rng.uniform(0, 5), files=here.waiting // left)
        here.kill(cluster.workers.pop(here.rng.randrange(len(cluster.workers))))
        cluster.add_worker()
        if here.last("offsets") > before or here.rng.random() < 0.5:
            here.until_trigger(session, here.last("offsets"), done=True)
    assert session.interrupt() == 130
    here.finish()


def test_kills_of_workers_and_driver(scene: MakeScene, cluster: Cluster) -> None:
    here = on(cluster, scene, 500)
    for left in range(3, 0, -1):
        session = here.watch()
        here.until_trigger(session, max(0, here.last("offsets")))
        here.live(session, here.rng.uniform(0, 10), files=here.waiting // left)
        here.kill(cluster.workers.pop(0))
        here.live(session, here.rng.uniform(0, 5))
        here.kill(session)
        cluster.add_worker()
    here.finish()
