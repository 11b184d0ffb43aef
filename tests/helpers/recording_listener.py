"""A listener of calls and sessions that records what a server sends."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Notification
from taskgate.upstream.calls import ResumePoint, ServerQuestion


@dataclass
class RecordingListener:
    """Records everything; see SessionCallListener. `clog` returns the `clogs` in turn, and `keep` the `leave`."""

    passes_rounds: bool = False
    leaves: bool = False
    can_be_asked: bool = True
    notifications: list[Notification] = field(default_factory=list)
    questions: list[ServerQuestion] = field(default_factory=list)
    refusals: list[Mapping[str, Any]] = field(default_factory=list)
    """The capabilities for whose lack questions were refused."""
    servers: list[ServerDescription] = field(default_factory=list)
    resume_points: list[ResumePoint] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    clogs: list[Any] = field(default_factory=list)
    leave: Any = None
    announced: int = 0
    """How often more was announced."""

    def met(self, server: ServerDescription) -> None:
        self.servers.append(server)

    def more_follows(self) -> None:
        self.announced += 1

    def on_notification(self, notification: Notification) -> None:
        self.notifications.append(notification)

    def clog(self) -> asyncio.Future[None] | None:
        return self.clogs.pop(0) if self.clogs else None

    def keep(self, between: Any) -> Any:
        self.kept.append(between)
        return self.leave

    def on_checkpoint(self, resume_point: ResumePoint) -> None:
        self.resume_points.append(resume_point)

    def asked(self, question: ServerQuestion) -> None:
        self.questions.append(question)

    def refused(self, required: Mapping[str, Any]) -> None:
        self.refusals.append(required)
