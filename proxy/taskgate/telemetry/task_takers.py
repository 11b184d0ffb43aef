"""Facts about tasks become metrics: one short function a fact; see `metrics`."""

from taskgate.telemetry import audit, catalogue
from taskgate.telemetry.series import Registry, Takers


def task_takers(registry: Registry) -> Takers:
    """For what happens to tasks before their end."""
    started = registry.counter(catalogue.STARTED)
    granted = registry.histogram(catalogue.TTL)
    adjustments = registry.counter(catalogue.ADJUSTMENTS)
    queue_wait = registry.histogram(catalogue.QUEUE_WAIT)
    transitions = registry.counter(catalogue.TRANSITIONS)
    cancels = registry.counter(catalogue.CANCELS)
    recoveries = registry.counter(catalogue.RECOVERIES)
    denials = registry.counter(catalogue.DENIALS)
    running = registry.gauge(catalogue.RUNNING)

    def created(fact: audit.TaskCreated) -> None:
        started[fact.mount,].inc()
        granted[fact.mount,].observe(fact.ttl.total_seconds())
        if fact.adjustment is not None:
            adjustments[fact.mount, fact.adjustment].inc()

    def dispatched(fact: audit.TaskDispatched) -> None:
        queue_wait[fact.mount,].observe(fact.waited.total_seconds())

    def moved(fact: audit.TaskMoved) -> None:
        transitions[fact.mount, fact.before, fact.after].inc()

    def cancel_asked(fact: audit.TaskCancelAsked) -> None:
        cancels[fact.mount, fact.outcome].inc()

    def recovered(fact: audit.TaskRecovered) -> None:
        recoveries[fact.mount, fact.outcome].inc()

    def denied(fact: audit.TaskDenied) -> None:
        denials[fact.mount, fact.method].inc()

    def counted(fact: audit.CallsRunning) -> None:
        running[fact.mount,].set(fact.count)

    return {
        audit.TaskCreated: created,
        audit.TaskDispatched: dispatched,
        audit.TaskMoved: moved,
        audit.TaskCancelAsked: cancel_asked,
        audit.TaskRecovered: recovered,
        audit.TaskDenied: denied,
        audit.CallsRunning: counted,
    }


def ending_takers(registry: Registry) -> Takers:
    """For the ends of tasks, and what comes after."""
    endings = registry.counter(catalogue.FINISHED)
    durations = registry.histogram(catalogue.DURATION)
    result_bytes = registry.histogram(catalogue.RESULT_BYTES)
    expirations = registry.counter(catalogue.EXPIRATIONS)
    purges = registry.counter(catalogue.PURGED)
    late_answers = registry.counter(catalogue.LATE_ANSWERS)

    def finished(fact: audit.TaskFinished) -> None:
        endings[fact.mount, fact.status, fact.reason].inc()
        durations[fact.mount, fact.status].observe(fact.age.total_seconds())
        if fact.result_bytes is not None:
            result_bytes[fact.mount,].observe(fact.result_bytes)

    def expired(fact: audit.TaskExpired) -> None:
        expirations[fact.mount, fact.phase].inc()

    def purged(fact: audit.TaskPurged) -> None:
        purges[fact.status,].inc()

    def late_answer_dropped(fact: audit.LateAnswerDropped) -> None:
        late_answers[fact.mount,].inc()

    return {
        audit.TaskFinished: finished,
        audit.TaskExpired: expired,
        audit.TaskPurged: purged,
        audit.LateAnswerDropped: late_answer_dropped,
    }
