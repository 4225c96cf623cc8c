"""`invoke publish`: publish built and tested variants with Flox."""

from __future__ import annotations

from build_pytorch.cli.commands import PublishCommandOptions
from build_pytorch.publish import publish_run


def run(options: PublishCommandOptions) -> int:
    """Publish variants. Returns the exit code. Raises BuildPytorchError."""
    return publish_run.run(
        publish_run.PublishOptions(
            patterns=options.variants,
            root=options.root,
            organization=options.org,
            unproved=options.without_evidence or options.unproved,
            dry_run=options.dry_run,
            json=options.json,
        )
    )
