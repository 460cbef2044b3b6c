"""A consumer group, asked about from outside of it."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupState, KafkaException

from worker.adapters.kafka.asker import AdminClient
from worker.adapters.kafka.errors import CALL_S, client, failure
from worker.base.errors import Fatal
from worker.config import Config

_NOBODY = {ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD}


class KafkaGroup:
    """The group of the configuration. All questions raise WorkerError."""

    def __init__(self, config: Config) -> None:
        self.name = str(config.kafka["group.id"])
        self._admin: AdminClient = client(AdminClient, config.admin_properties())

    def has_members(self) -> bool:
        """Whether anybody is in it, be it one who left with a group.instance.id, whose session has not ended yet.

        The state tells it for both protocols of groups; the members of the newer one this client does not list.
        """
        what, need = f"group {self.name} cannot be looked at", f"DESCRIBE on group {self.name}"
        try:
            found = self._admin.list_consumer_groups(request_timeout=CALL_S).result()
        except KafkaException as exception:
            raise failure(exception, Fatal, what, need) from exception
        for error in found.errors:
            raise failure(error, Fatal, what, need)
        return any(each.group_id == self.name and each.state not in _NOBODY for each in found.valid)
