"""An observation for the tests."""

from __future__ import annotations

from typing import Final

from tools.aws_trial.observation import Calls, Command, Observation, Refusal, Resource

UP: Final = Command(name="up", line="fab up --yes", exit_code=0, seconds=300.0, last_lines=("done",))
GROUP: Final = Resource(
    phase="create",
    logical_id="WorkerGroup",
    type="AWS::AutoScaling::AutoScalingGroup",
    states=("CREATE_IN_PROGRESS", "CREATE_COMPLETE"),
    seconds=90.0,
)
DESCRIBED: Final = Calls(
    operation="ec2:DescribeInstances", count=4, seconds=0.2, retries=0, errors=(), fields=("A", "B[].C")
)
NO_STACK: Final = Refusal(name="a stack that is not there", code="ValidationError", message="no stack")
OBSERVED: Final = Observation(
    where="aws eu-west-1",
    date="2026-11-23 12:00 UTC",
    commit="abc1234",
    settings={"name": "CLUSTER"},
    commands=(UP,),
    resources=(GROUP,),
    calls=(DESCRIBED,),
    refusals=(NO_STACK,),
    facts={"doctor before: stack": "ok"},
    left=(),
)
