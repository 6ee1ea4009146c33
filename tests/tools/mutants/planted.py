# ruff: noqa: E501 - lines of the package, with quotes
"""The planted bugs: each one replaces lines of the package.

A mutant's old lines must be in its file exactly once; otherwise it doesn't apply any more, which is
a failure (`test_mutants.py`): then write it anew for the changed code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug to plant.

    Attributes:
        name: what the bug does.
        path: the file, in the package.
        old, new: the lines before and after.
        scenario: what hunts it, a key of `seeds.SCENARIOS` (default "clients"), or a test: its file
            and name, as pytest takes them.
    """

    name: str
    path: str
    old: str
    new: str
    scenario: str = "clients"

    @property
    def is_hunted_by_a_test(self) -> bool:
        """Whether `scenario` is a test."""
        return "::" in self.scenario

    def apply(self, text: str) -> str:
        """Return the file's text with the bug.

        Raises:
            ValueError: the old lines aren't there exactly once.
        """
        if text.count(self.old) != 1:
            raise ValueError(
                f"mutant {self.name}: its lines are {text.count(self.old)} times in {self.path}, "
                "expected once; write it anew"
            )
        return text.replace(self.old, self.new)


MUTANTS = (
    # --- the producer -----------------------------------------------------------------------------
    Mutant(
        "two batches of a partition in flight",
        "producer/accumulator.py",
        "            if mute:\n                queue.muted_by = batch\n",
        "",
    ),
    Mutant(
        "a retried batch goes behind the queue",
        "producer/accumulator.py",
        "        queue.batches.appendleft(batch)\n        queue.not_before = now + delay_s\n",
        "        queue.open_batch = None\n"
        "        queue.batches.append(batch)\n        queue.not_before = now + delay_s\n",
    ),
    Mutant(
        "a split batch loses its tail",
        "producer/accumulator.py",
        "        for half in (second, first):\n",
        "        for half in (first,):\n",
    ),
    Mutant(
        "the halves of a split batch change places",
        "producer/accumulator.py",
        "        for half in (second, first):\n",
        "        for half in (first, second):\n",
    ),
    Mutant(
        "batches have ten times the delivery timeout",
        "producer/accumulator.py",
        "            due_at=now + self._linger_s,\n"
        "            deadline=sent_at + self.delivery_timeout_s,\n",
        "            due_at=now + self._linger_s,\n"
        "            deadline=sent_at + 10 * self.delivery_timeout_s,\n",
    ),
    Mutant(
        "the leader that a metadata refresh names isn't followed",
        "producer/accumulator.py",
        "        if leader == queue.leader:\n            return\n        queue.leader = leader\n",
        "        if leader == queue.leader or queue.leader is not None:\n"
        "            return\n        queue.leader = leader\n",
    ),
    Mutant(
        "the timer of the deadlines isn't armed again",
        "producer/passes.py",
        "        self._timer = None\n        if self._stopped:\n            return\n",
        "        if self._stopped:\n            return\n",
    ),
    Mutant(
        "responses are matched by their place",
        "producer/sink.py",
        "        for batch in self.batches:\n"
        "            produced = responses.get(batch.queue.topic_partition)\n",
        "        for batch, produced in zip(self.batches, responses.values(), strict=False):\n",
    ),
    Mutant(
        "a partition missing from the response is stored",
        "producer/sink.py",
        "            produced = responses.get(batch.queue.topic_partition)\n",
        "            produced = responses.get(\n"
        "                batch.queue.topic_partition,\n"
        "                ProducedPartition(batch.queue.topic_partition.partition, 0, 0),\n"
        "            )\n",
    ),
    Mutant(
        "the offset after a batch is taken for its first",
        "producer/sink.py",
        "                base_offset -= batch.count\n",
        "                pass\n",
    ),
    Mutant(
        "batches of a lost connection aren't retried",
        "producer/sink.py",
        "                for batch in request.batches:\n"
        "                    self._resolver.retry(batch, error, now, may_be_stored=True)\n"
        "            # Not `send_due`",
        "                pass\n            # Not `send_due`",
    ),
    Mutant(
        "a lost connection doesn't tell that messages may be stored",
        "producer/sink.py",
        "                    self._resolver.retry(batch, error, now, may_be_stored=True)\n"
        "            # Not `send_due`",
        "                    self._resolver.retry(batch, error, now, may_be_stored=False)\n"
        "            # Not `send_due`",
    ),
    Mutant(
        "codes 7 and 20 don't tell that messages may be stored",
        "producer/outcome.py",
        "            return BatchDecision(Outcome.RETRY, error, may_be_stored=True)\n",
        "            return BatchDecision(Outcome.RETRY, error)\n",
    ),
    Mutant(
        "a leader that moves doesn't tell that messages may be stored",
        "producer/outcome.py",
        "            may_be_stored = waits_for_replicas and code == NotLeaderForPartitionError.errno\n",
        "            may_be_stored = False\n",
    ),
    Mutant(
        "NotLeaderForPartition is final",
        "producer/outcome.py",
        "            return BatchDecision(Outcome.RETRY, error, may_be_stored, refresh=True)\n",
        "            return BatchDecision(Outcome.FAILED, error)\n",
    ),
    Mutant(
        "a producer doesn't refresh the metadata after NotLeaderForPartition",
        "producer/outcome.py",
        "            return BatchDecision(Outcome.RETRY, error, may_be_stored, refresh=True)\n",
        "            refresh = code != NotLeaderForPartitionError.errno\n"
        "            return BatchDecision(Outcome.RETRY, error, may_be_stored, refresh=refresh)\n",
    ),
    Mutant(
        "a batch that is refused for its size is stored",
        "producer/outcome.py",
        "        case Action.SPLIT if messages > 1:\n"
        "            return BatchDecision(Outcome.SPLIT, error, too_large=True)\n",
        "        case Action.SPLIT if messages > 1:\n            return _STORED\n",
    ),
    Mutant(
        "a failed batch keeps its memory",
        "producer/outcome.py",
        "            if not batch.in_flight:\n"
        "                self._memory.release(batch.builder.size_bytes)\n",
        "            pass\n",
    ),
    Mutant(
        "a cancelled call keeps the memory that it was given",
        "producer/memory.py",
        "                self.release(size)\n            else:\n",
        "                pass\n            else:\n",
    ),
    Mutant(
        "calls behind a cancelled one get no memory",
        "producer/memory.py",
        "            if not served.done():  # else its task was cancelled and hasn't run yet\n",
        "            if served.done():\n"
        "                return\n"
        "            if True:\n",
    ),
    # --- the consumer -----------------------------------------------------------------------------
    Mutant(
        "the position advances before messages are handed out",
        "consumer/record_buffer.py",
        "        return min(self._current[-left - 1].offset + 1, self._current[-left].offset)\n",
        "        return self._current_end\n",
    ),
    Mutant(
        "the fetch position is committed",
        "consumer/commits.py",
        "        tp: min((taken.position for taken in cursor.unreturned), default=cursor.position)\n",
        "        tp: cursor.position and cursor.next_fetch.offset\n",
    ),
    Mutant(
        "a commit overtakes another one",
        "consumer/commits.py",
        "        offsets: _ToCommit,\n"
        "        identity: CommitIdentity,\n"
        "        timeout_s: float | None,\n"
        "    ) -> None:\n"
        "        loop = asyncio.get_running_loop()\n",
        "        offsets: _ToCommit,\n"
        "        identity: CommitIdentity,\n"
        "        timeout_s: float | None,\n"
        "    ) -> None:\n"
        "        loop = asyncio.get_running_loop()\n"
        "        if self._lock.locked():\n"
        "            await asyncio.sleep(0.5)\n"
        "            await self._store.commit(offsets, identity, timeout_s=self._timeout_s)\n"
        "            return\n",
    ),
    Mutant(
        "a partition missing from the response to a commit is committed",
        "_core/offset_store/responses.py",
        "    if committed is None:\n        return left_out(",
        "    if committed is None:\n        return None and left_out(",
    ),
    Mutant(
        "errors of a commit are ignored",
        "_core/offset_store/responses.py",
        "    return broker_error(group_code(committed.error_code)) if committed.error_code else None",
        "    return None",
    ),
    Mutant(
        "a message whose offset falls is lost at the end of the log",
        "_core/ranges/next_fetch.py",
        "        self._dropped = dropped\n        self.meets_damage = bool(dropped) or ",
        "        self._dropped = []\n        self.meets_damage = ",
        "tests/consumer/test_damaged_sets.py::test_message_whose_offset_falls_is_raised",
    ),
    Mutant(
        "a range ends in front of a message whose offset falls",
        "_core/ranges/range_reader.py",
        "        if self._next_fetch.offset == self._end and self._next_fetch.lacks_dropped:\n"
        "            raise not_a_message(self._tp, self._end, self._end)\n",
        "",
        "tests/_core/ranges/test_range_reader.py"
        "::test_message_whose_offset_falls_is_raised_behind_the_others",
    ),
    Mutant(
        "a stale response is taken after a seek",
        "consumer/cursor.py",
        "        if not self.abandon_fetch(fetch):\n            return FetchResult.STALE\n",
        "        self.abandon_fetch(fetch)\n",
    ),
    Mutant(
        "a fetch begins one offset too late",
        "consumer/cursor.py",
        "            next_fetch.offset,\n            self.fetch_bytes(share_bytes),\n",
        "            next_fetch.offset + (next_fetch.offset % 7 == 3),\n"
        "            self.fetch_bytes(share_bytes),\n",
    ),
    Mutant(
        "a seek leaves the buffer as it is",
        "consumer/cursor.py",
        "            self.next_fetch = NextFetch(offset)\n        self.buffer.reset(offset)\n",
        "            self.next_fetch = NextFetch(offset)\n"
        "        if not self.buffer.pending:\n"
        "            self.buffer.reset(offset)\n",
    ),
    Mutant(
        "a fetch that failed isn't sent again",
        "consumer/cursor.py",
        "        if self.in_flight is not fetch:\n"
        "            self.superseded_bytes -= fetch.max_bytes\n"
        "            return False\n"
        "        self.in_flight = None\n"
        "        return True\n",
        "        if self.in_flight is not fetch:\n"
        "            self.superseded_bytes -= fetch.max_bytes\n"
        "            return False\n"
        "        if not self._tries:\n"
        "            self.in_flight = None\n"
        "        return True\n",
    ),
    Mutant(
        "an error isn't cleared when it is raised",
        "consumer/cursor.py",
        "        error, self.error = self.error, None\n",
        "        error = self.error\n",
        "tests/consumer/test_cursor.py::test_failed_cursor_raises_any_exception_once",
    ),
    Mutant(
        "messages are returned after the revocation has begun",
        "consumer/engine.py",
        "            cursor.revoked = True\n            self.collector.remove(cursor)\n",
        "            pass\n",
    ),
    Mutant(
        "a consumer doesn't refresh the metadata after NotLeaderForPartition",
        "consumer/fetcher.py",
        "                self._emit_failure(cursor, broker_error(error_code))\n"
        "                self._router.metadata.request_refresh()\n",
        "                self._emit_failure(cursor, broker_error(error_code))\n"
        "                if error_code != 6:\n"
        "                    self._router.metadata.request_refresh()\n",
        "tests/consumer/test_fetcher.py::test_moved_leader_is_followed",
    ),
    Mutant(
        "partitions begin at the end of the log",
        "consumer/start_offsets.py",
        "                cursor.start = self._reset  # it stays",
        "                cursor.start = StartPosition.LATEST  # it stays",
    ),
    Mutant(
        "committed offsets are ignored",
        "consumer/start_offsets.py",
        "            elif committed is not None:\n",
        "            elif committed is None and False:\n",
    ),
    Mutant(
        "partitions begin 50 messages before the committed offset",
        "consumer/start_offsets.py",
        "                self._set_position(cursor, committed.offset)\n",
        "                self._set_position(cursor, max(0, committed.offset - 50))\n",
    ),
    Mutant(
        "messages before the position in a compressed set are returned",
        "protocol/_reader_py.py",
        "            if offset < fetch_offset:\n",
        "            if offset < fetch_offset - 2:\n",
    ),
    Mutant(
        "an error behind the messages of a set is dropped",
        "consumer/record_buffer.py",
        "            if len(records) > max_records or reader.error is not None or reader.paused:\n"
        "                break  # the set has more\n",
        "            if len(records) > max_records or reader.paused:\n"
        "                break  # the set has more\n",
        "mixed",
    ),
    Mutant(
        "a message that is cut off in its wrapper is skipped",
        "protocol/_reader_py.py",
        "        if left and self._after_wrapper is not None:\n",
        "        if left < 0:\n",
        "mixed",
    ),
    Mutant(
        "a wrapper without a whole message is skipped",
        "protocol/_reader_py.py",
        "        if not inside.whole_bytes or not (is_whole or has_offsets):\n",
        "        if inside.whole_bytes and not (is_whole or has_offsets):\n",
        "mixed",
    ),
    Mutant(
        "an error waits behind the backlog of other partitions",
        "consumer/collector.py",
        "        if cursor.fails_next:\n"
        "            self._ready.move_to_end(cursor, last=False)\n"
        "            self._stop_serving()\n",
        "        pass\n",
        "tests/consumer/test_errors_before_backlogs.py"
        "::test_damage_is_raised_before_the_backlog_of_others",
    ),
    Mutant(
        "the position passes an offset with the first of its messages",
        "consumer/record_buffer.py",
        "            return min(last_offset + 1, self._undeserialized[0].offset)\n",
        "            return last_offset + 1\n",
        "tests/consumer/test_damaged_sets.py"
        "::test_position_passes_a_shared_offset_with_its_last_message",
    ),
    Mutant(
        "a member waits for its group without a deadline",
        "consumer/membership/broker_group.py",
        "            self._start_deadline = loop.time() + self._router.config.start_timeout_s\n",
        "            pass\n",
        "tests/consumer/membership/test_start_of_a_member.py"
        "::test_unreachable_coordinator_ends_the_start",
    ),
    # --- groups in ZooKeeper ----------------------------------------------------------------------
    Mutant(
        "a member reads on after its ZooKeeper session has ended",
        "consumer/membership/zookeeper_group.py",
        "            self._owned = {}\n            await self._assignee.revoke()\n\n",
        "            self._owned = {}\n\n",
        "leases",
    ),
    Mutant(
        "a member keeps its partitions until ZooKeeper can be reached again",
        "consumer/membership/zookeeper_group.py",
        "        return self._member_state.session_deadline if self._owned else None\n",
        "        return None\n",
        "leases",
    ),
    Mutant(
        "a member keeps its partitions until kazoo notices that the network is lost",
        "consumer/membership/zookeeper_group.py",
        "        return deadline is not None and deadline <= asyncio.get_running_loop().time()\n",
        "        return not self._is_connected and bool(deadline) and deadline <= asyncio.get_running_loop().time()\n",
        "tests/consumer/membership/zookeeper/test_simulated_groups.py"
        "::test_partitions_are_dropped_in_time_in_a_silent_network",
    ),
    Mutant(
        "a member commits after its ZooKeeper session has ended",
        "consumer/commits.py",
        "        if not state.session_lost and now <= state.session_deadline:\n",
        "        if True:\n",
        "leases",
    ),
    Mutant(
        "the ZooKeeper of another cluster is used",
        "_core/zookeeper/cluster_check.py",
        "        match agreement:\n",
        "        match Agreement.SAME:\n",
        "mixed",
    ),
    Mutant(
        "only the first session is compared with the brokers",
        "_core/zookeeper/session.py",
        "        if current is not None and current[0] == self._verified:\n",
        "        if self._verified is not None:\n",
        "mixed",
    ),
    # --- what only a quiet cluster shows ------------------------------------------------------------
    Mutant(
        "a heartbeat goes to the same broker after it was refused",
        "consumer/membership/heartbeat.py",
        "        if step is NextStep.FIND_COORDINATOR:\n"
        "            self._coordinator.invalidate(node_id)\n",
        "",
        "quiet",
    ),
    Mutant(
        "a coordinator that refuses commits isn't looked up anew",
        "_core/offset_store/kafka_store.py",
        "        if isinstance(error, BrokerResponseError) and error.action is Action.COORDINATOR:\n",
        "        if not error:\n",
        "quiet",
    ),
    Mutant(
        "a member that the coordinator doesn't know keeps its partitions",
        "consumer/membership/broker_group.py",
        "        elif step in (NextStep.REJOIN, NextStep.JOIN_AS_NEW):\n",
        "        elif step is NextStep.REJOIN:\n",
        "quiet",
    ),
    Mutant(
        "a position that isn't found refreshes nothing",
        "consumer/start_offsets.py",
        "        self._router.metadata.request_refresh()\n        cursor.back_off(",
        "        cursor.back_off(",
        "quiet",
    ),
    Mutant(
        "offsets are listed again by the same leader",
        "_core/net/list_offsets.py",
        "        router.metadata.request_refresh()\n        return next(",
        "        return next(",
        "quiet",
    ),
    Mutant(
        "a producer waits for a leader without asking for it",
        "producer/sender.py",
        "            self._router.metadata.request_refresh()\n            retry_at",
        "            retry_at",
        "quiet",
    ),
    Mutant(
        "a consumer waits for a leader without asking for it",
        "consumer/fetcher.py",
        "            self._router.metadata.request_refresh()\n"
        "            await asyncio.sleep(backoff.next())\n",
        "            await asyncio.sleep(backoff.next())\n",
        "quiet",
    ),
    Mutant(
        "a failed fetch refreshes nothing",
        "consumer/fetcher.py",
        "        self._mark_failing(broker)\n        self._router.metadata.request_refresh()\n",
        "        self._mark_failing(broker)\n",
        "tests/faults/simulation/test_quiet.py::test_failed_request_refreshes_the_metadata",
    ),
    Mutant(
        "a failed Produce refreshes nothing",
        "producer/sink.py",
        "            now = self._loop.time()\n"
        "            self._router.metadata.request_refresh()\n"
        "            if self._options.required_acks == 0:\n",
        "            now = self._loop.time()\n            if self._options.required_acks == 0:\n",
        "tests/faults/simulation/test_quiet.py::test_failed_request_refreshes_the_metadata",
    ),
    Mutant(
        "a request to a lost broker refreshes nothing",
        "_core/net/router.py",
        "        except _LOST:\n"
        "            self.metadata.request_refresh()\n"
        "            raise\n"
        "\n"
        "    async def request_any(\n",
        "        except _LOST:\n            raise\n\n    async def request_any(\n",
        "tests/_core/net/test_router.py::test_a_lost_or_silent_broker_refreshes_the_metadata",
    ),
    Mutant(
        "a topic that is missing isn't looked for",
        "consumer/membership/topic_search.py",
        "            return None\n        self._router.metadata.request_refresh()\n",
        "            return None\n",
        "tests/consumer/membership/test_later_topics.py"
        "::test_topic_that_is_created_later_is_read_soon",
    ),
    # --- sessions and times -----------------------------------------------------------------------
    Mutant(
        "a session that is lost inside a rebalance ends the membership",
        "consumer/membership/zookeeper_group.py",
        "                if not error.retriable:\n"
        "                    raise\n"
        "                failure = error.nested_text(KafkaUnavailableError)\n",
        "                if error is not None:\n"
        "                    raise\n"
        "                failure = error.nested_text(KafkaUnavailableError)\n",
        "mixed",
    ),
    Mutant(
        "messages linger twice as long",
        "producer/accumulator.py",
        "            due_at=now + self._linger_s,\n",
        "            due_at=now + 2 * self._linger_s,\n",
        "tests/faults/simulation/test_times.py::test_message_lingers_for_linger_ms",
    ),
    Mutant(
        "the pauses between retries grow without a limit",
        "producer/outcome.py",
        "            batch.attempts, self._config.retry_backoff_s, self._config.retry_backoff_max_s\n",
        "            batch.attempts, self._config.retry_backoff_s, 3600.0\n",
        "tests/faults/simulation/test_times.py::test_pauses_between_retries_grow_to_their_limit",
    ),
    Mutant(
        "an idle connection stays open twice as long",
        "_core/net/node.py",
        "        limit = now - self._config.connections_max_idle_s\n",
        "        limit = now - 2 * self._config.connections_max_idle_s\n",
        "tests/faults/simulation/test_times.py::test_idle_connection_is_closed_at_its_limit",
    ),
    # --- late responses ---------------------------------------------------------------------------
    Mutant(
        "a batch that is taken back counts as not stored",
        "producer/sink.py",
        "                self._resolver.retry(batch, error, now, may_be_stored=True)\n"
        "            request.batches = staying\n",
        "                self._resolver.retry(batch, error, now, may_be_stored=False)\n"
        "            request.batches = staying\n",
        "quiet",
    ),
    Mutant(
        "batches wait for the late response though the leader has moved",
        "producer/sink.py",
        "        if found_overdue:\n",
        "        if found_overdue and not self._requests:\n",
        "quiet",
    ),
    Mutant(
        "an overdue response refreshes nothing",
        "_core/net/watchdog.py",
        "        self._metadata.request_refresh()\n        if self._on_overdue",
        "        if self._on_overdue",
        "quiet",
    ),
    Mutant(
        "a commit is sent again to the coordinator that is late",
        "_core/offset_store/kafka_store.py",
        "            if error.retriable:\n                self._coordinator.invalidate(node_id)\n",
        "",
        "quiet",
    ),
    # --- positions outside the log ----------------------------------------------------------------
    Mutant(
        "a reset goes to the end, whatever the policy is",
        "consumer/start_offsets.py",
        "        new = first if self._reset is StartPosition.EARLIEST else last\n",
        "        new = last\n",
        "quiet",
    ),
    Mutant(
        "a position beyond the end goes on at the end",
        "consumer/start_offsets.py",
        "        new = first if self._reset is StartPosition.EARLIEST else last\n",
        "        earliest = self._reset is StartPosition.EARLIEST\n"
        "        new = first if earliest and offset < first else last\n",
        "quiet",
    ),
    Mutant(
        "a position before the start goes on at the start",
        "consumer/start_offsets.py",
        "        new = first if self._reset is StartPosition.EARLIEST else last\n",
        "        earliest = self._reset is StartPosition.EARLIEST\n"
        "        new = first if earliest or offset < first else last\n",
        "quiet",
    ),
    # --- what only the wider use of the API shows -------------------------------------------------
    Mutant(
        "what arrives for a paused partition is returned",
        "consumer/collector.py",
        "            and not cursor.paused\n",
        "",
        "mixed",
    ),
    Mutant(
        "a resumed partition isn't fetched",
        "consumer/engine.py",
        "        cursor.resume()\n        self._cursor_changed(cursor)\n"
        "        self.collector.add_ready(cursor)\n",
        "        cursor.resume()\n",
        "mixed",
    ),
    Mutant(
        "a commit to both stores leaves ZooKeeper out",
        "_core/offset_store/dual_store.py",
        "        await self._zookeeper.commit("
        "offsets, identity, timeout_s=max(deadline - clock(), 0.0))\n",
        "        max(deadline - clock(), 0.0)\n",
        "mixed",
    ),
    # --- committed offsets of groups with auto-commit ---------------------------------------------
    Mutant(
        "partitions begin three messages before the committed offset",
        "consumer/start_offsets.py",
        "                self._set_position(cursor, committed.offset)\n",
        "                self._set_position(cursor, max(0, committed.offset - 3))\n",
        "mixed",
    ),
    # --- connections and metadata -----------------------------------------------------------------
    Mutant(
        "an error empties the snapshot of a topic",
        "_core/net/cluster.py",
        "    if not state.partitions and known is not None:\n        partitions = known.partitions\n",
        "    if state.error_code and known is not None:\n        partitions = {}\n",
    ),
    Mutant(
        "brokers keep the addresses that they had first",
        "_core/net/cluster.py",
        "        brokers = {broker.node_id: broker for broker in response.brokers}\n",
        "        brokers = {\n"
        "            broker.node_id: self.brokers.get(broker.node_id, broker)\n"
        "            for broker in response.brokers\n"
        "        }\n",
    ),
    Mutant(
        "the correlation id of a cancelled request is forgotten",
        "_core/net/transport.py",
        "                response = await waiter\n",
        "                try:\n"
        "                    response = await waiter\n"
        "                except asyncio.CancelledError:\n"
        "                    for one in list(self._protocol._in_flight):\n"
        "                        if self._pending[one.correlation_id].waiter is waiter:\n"
        "                            self._protocol._in_flight.remove(one)\n"
        "                            del self._pending[one.correlation_id]\n"
        "                    raise\n",
    ),
    # The same, and the client doesn't compare correlation ids: all later responses are one off.
    Mutant(
        "the response to a request that timed out goes to the next request",
        "_core/net/transport.py",
        "                waiter = self._pending.pop(correlation_id).waiter\n",
        "                waiter = self._pending.pop(correlation_id).waiter\n"
        "                if waiter.done() and self._pending:\n"
        "                    waiter = next(iter(self._pending.values())).waiter\n",
    ),
    Mutant(
        "waiters aren't told of a lost connection",
        "_core/net/transport.py",
        "                waiter.set_exception(KafkaConnectionError(f\"{self._name}: {reason}\"))\n",
        "                pass\n",
    ),
    Mutant(
        "a message set that is null closes the connection",
        "protocol/types.py",
        "            if length < least:\n",
        "            if length < 0:\n",
        "tests/consumer/test_fetcher.py"
        "::test_refused_partition_with_a_null_set_affects_it_alone",
    ),
    Mutant(
        "a lost connection isn't opened again without traffic",
        "_core/net/node_registry.py",
        "        if self._reconnect is not None and not self._closed and not self.is_connected:\n"
        "            self._reconnect()\n",
        "        pass\n",
        "tests/_core/net/test_readiness.py::test_client_is_ready_again_without_traffic",
    ),
    Mutant(
        "the first address that accepts a connection is the broker's",
        "_core/net/probe.py",
        "    ip, version = await connect_to_any_ip(address, config, ips, probe, limit_s)\n",
        "    async def connect(ip: str) -> str:\n"
        "        (await asyncio.open_connection(ip, address[1]))[1].close()\n"
        "        return ip\n\n"
        "    ip, version = await probe(\n"
        "        await connect_to_any_ip(address, config, ips, connect, limit_s)\n"
        "    )\n",
        "tests/_core/net/test_half_dead_addresses.py::test_a_half_dead_address_of_a_name_is_skipped",
    ),
    Mutant(
        "a bootstrap address that closes its connections isn't tried again",
        "_core/net/node_registry.py",
        "            return not (is_too_new or is_over or is_for_the_user(error))\n",
        "            return False\n",
        "tests/_core/net/test_half_dead_addresses.py"
        "::test_a_balancer_without_a_broker_is_tried_again",
    ),
    Mutant(
        "a closed connection leaves its timer",
        "_core/net/transport.py",
        "        if self._silence_timer is not None:\n            self._silence_timer.cancel()\n",
        "",
    ),
)  # fmt: skip
