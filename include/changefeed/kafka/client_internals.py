"""All internals of kafka-python that finished record batches and fencing depend on.

kafka-python's producer builds record batches from single records; it has no public call for a finished batch. So this
file puts a finished batch into the producer's accumulator, as if it had been built there. The producer's sender,
transaction manager, retries, fencing, TLS and SASL do the rest. Each definition says what it assumes of version 3.0.12,
which pyproject.toml pins exactly; tests/contract/test_client_internals.py fails if an assumption is wrong in another
version.

Its transactions are weaker than those of the Java client. This file makes them strict:

- If kafka-python does not know whether a broker has a sequence number, it bumps the producer's epoch without notice.
  That aborts the open transaction, and on brokers before 2.7 it takes the transactional id back from a newer producer.
  Here it is a fatal error.
- A batch that is not delivered in time does not fail the transaction: it could be committed without the batch.
  `Transactions` commits no transaction with a failed batch.
- `commit_transaction`, `abort_transaction` and `close` wait without a limit; here they have a timeout.
- Its network code has faults that `PatchedClient` fixes.
- A password is fixed for the life of a client. Here `PatchedClient` can get a new one for each login.
- SCRAM accepts any number of iterations; here the minimum is 4096, as in RFC 7677.

Its checksum is computed in plain Python, at 3 MB a second; this file replaces it by a compiled one.
"""

from __future__ import annotations

import functools
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from threading import Thread
from typing import Any

import google_crc32c
import kafka
import kafka.errors
from kafka.admin import KafkaAdminClient
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.sasl.scram import ScramClient
from kafka.producer.producer_batch import ProducerBatch
from kafka.producer.transaction_manager import TransactionState
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer import InitProducerIdRequest
from kafka.record import default_records

from changefeed.errors import ChangefeedError
from changefeed.records.compression import CODECS
from changefeed.records.record_batch import HEAD, HEAD_BYTES, Record, Times, encode_records, record_batch

LARGEST_REQUEST_BYTES = 16 << 20
"""Limit of the batches in one request; a larger batch is sent alone. Brokers accept 100 MB
(socket.request.max.bytes)."""
SMALL_RECORD_BYTES = 64 << 10
"""Limit of the records that kafka-python collects in batches, and of these batches."""

Done = Callable[[int | None, Exception | None], None]
"""Called once with the offset of the first record, or with the error."""

NOT_AUTHENTICATED = (
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedSaslMechanismError,
    kafka.errors.IllegalSaslStateError,
)
"""Errors of a refused login."""
NewPassword = Callable[[str, int], str]
"""Returns the password, or the token, of a login at a broker's host and port. Raises a ChangefeedError."""


class RenewedLoginError(kafka.errors.SaslAuthenticationFailedError):  # type: ignore[misc]
    """A broker refused a password that is new for each login, or there was none; then ``no_password`` says why."""

    no_password: ChangefeedError | None = None


UNTRUSTED = "certificate verify failed"
"""The error text of an untrusted broker certificate."""

_CRC_AT, _CHECKSUMMED_AT = 17, 21
_TRANSACTIONAL = 0x10
_NONE = -1

default_records.calc_crc32c = lambda data: google_crc32c.value(bytes(data))

_FEWEST_ITERATIONS = 4096
"""Minimum number of SCRAM iterations (RFC 7677, section 4). With fewer the proof makes it easy to guess the
password."""
_read_first_message = ScramClient.process_server_first_message


def _with_enough_iterations(client: ScramClient, message: bytes) -> None:
    pairs = (pair.partition("=") for pair in message.decode("utf-8", "replace").split(","))
    offered = {name: value for name, _, value in pairs}.get("i", "")
    if offered.isdecimal() and len(offered) < 10 and int(offered) < _FEWEST_ITERATIONS:
        raise kafka.errors.SaslAuthenticationFailedError(
            f"the broker offers SCRAM with {int(offered)} iterations, and RFC 7677 wants at least "
            f"{_FEWEST_ITERATIONS}: no proof of the password was sent. See which broker this is, and set the user's "
            "password anew with more iterations (kafka-configs.sh --alter --add-config)"
        )
    _read_first_message(client, message)


ScramClient.process_server_first_message = _with_enough_iterations

_READ_BYTES, _RECV_BYTES = 1 << 20, 1 << 16
_METADATA_BACKOFF_MS = 10
_FORGET_REFUSAL_SECONDS = 1.0
_LOOK_AGAIN_SECONDS = 0.02
_CLOSE_SECONDS = 1.0
_AT_ONCE = 5
"""Maximum of requests in flight on a connection; kafka-python refuses more than
max_in_flight_requests_per_connection."""


class PatchedClient(KafkaNetClient):  # type: ignore[misc]
    """The network of a client (its option ``kafka_client``), with fixes for faults of kafka-python.

    - Bytes that arrive together with the end of a connection are read before it ends: a broker reports a refused login
      and then closes the connection.
    - At most a megabyte is read at once. kafka-python reads all arriving bytes before it checks the size of a frame; it
      never stops if a broker sends faster than it reads.
    - A refused login or certificate is an error at the next attempt. kafka-python retries until the timeout.
    - A request that a silent broker does not answer is sent again over another connection, as after a lost connection.
      Otherwise an unanswered transaction request would end the producer.
    - Bytes that TLS cannot send at once are not copied again for each 16 kB that it sends.
    - The client requests the metadata of its first topic at once; kafka-python waits for a tenth of a second.
    - A transaction request for which there is no connection to the coordinator is sent later. kafka-python drops it,
      and waits for its answer until the timeout.

    ``new_password``, if any, is called for each login: of a new connection, and of an open one whose session ends
    (KIP-368).
    """

    def __init__(self, *, new_password: NewPassword | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        manager = self._manager
        self.cluster.config["retry_backoff_ms"] = _METADATA_BACKOFF_MS
        build, connect = manager._build_transport, manager._connect

        async def build_patched(node: Any, timeout_at: float | None = None) -> Any:
            transport = await build(node, timeout_at=timeout_at)
            write = transport.write
            transport._sock_recv = lambda: _receive(transport._sock)
            transport.write = lambda data: write(memoryview(data))
            return transport

        async def connect_noting(node: Any, connection: Any, **options: Any) -> None:
            def give_up(future: Any, sent_at: float, timeout_at: float) -> None:
                if not connection.closed and not future.is_done:
                    silence = f"no answer within {timeout_at - sent_at:g} seconds"
                    connection.close(kafka.errors.KafkaConnectionError(silence))

            connection._request_timed_out = give_up
            if new_password is not None:
                _renew_password(connection, functools.partial(new_password, node.host, node.port))
            await connect(node, connection, **options)
            error = connection.init_future.exception
            if isinstance(error, NOT_AUTHENTICATED) or UNTRUSTED in str(error):
                manager._auth_failures[node.node_id] = error

        manager._build_transport, manager._connect = build_patched, connect_noting
        if new_password is not None:
            _forget_refused_logins(manager)

    def await_ready(self, node_id: Any, timeout_ms: float = 30_000) -> bool:
        """Whether ``node_id`` is connected, if necessary after waiting. The sender sends its request again after
        False; after an error it would drop a request to a coordinator."""
        try:
            super().await_ready(node_id, timeout_ms=timeout_ms)
        except kafka.errors.KafkaError:
            return False
        return True


def is_well(client: KafkaAdminClient | kafka.KafkaConsumer) -> bool:
    """Whether ``client`` has no connection that it failed to open again, and its thread lives."""
    return _is_well(client._client._manager)


def producer_is_well(producer: kafka.KafkaProducer) -> bool:
    """As `is_well`."""
    return _is_well(producer._sender._client._manager)


def _is_well(manager: Any) -> bool:
    return not (manager._auth_failures or manager._backoff or manager._net._exception)


def _forget_refused_logins(manager: Any) -> None:
    """Let ``manager`` try again a second after a login was refused, because the next one has another password.

    kafka-python keeps an authentication failure, and raises it at each later use of the broker.
    """
    failures, raise_failure = manager._auth_failures, manager.maybe_raise_auth_failure
    raised_at: dict[int, tuple[Exception, float]] = {}

    def raise_recent_failure(node_id: Any) -> None:
        error, now = failures.get(node_id), time.monotonic()
        if error is not None:
            known, since = raised_at.get(node_id, (None, now))
            if known is not error:
                raised_at[node_id] = (error, now)
            elif now - since > _FORGET_REFUSAL_SECONDS:
                del failures[node_id], raised_at[node_id]
        raise_failure(node_id)

    manager.maybe_raise_auth_failure = raise_recent_failure


class _Token(AbstractTokenProvider):  # type: ignore[misc]
    """The token of one login by OAUTHBEARER, with the extensions that the connection's options name."""

    def __init__(self, token: str, extensions: dict[str, str]) -> None:
        super().__init__()
        self._token, self._extensions = token, extensions

    def token(self) -> str:
        return self._token

    def extensions(self) -> dict[str, str]:
        return self._extensions


class TokenExtensions(AbstractTokenProvider):  # type: ignore[misc]
    """A client's setting for OAUTHBEARER: the extensions of all its logins. Each login gets a token of its own."""

    def __init__(self, extensions: dict[str, str]) -> None:
        super().__init__()
        self.of_login = extensions

    def token(self) -> str:
        """Raises SaslAuthenticationFailedError: only a login has a token."""
        raise kafka.errors.SaslAuthenticationFailedError("this login has no token")


def _renew_password(connection: Any, password: Callable[[], str]) -> None:
    """Make ``connection`` log in with a new password each time. kafka-python reads it from its settings at each login.

    A thread calls ``password``, because the client's other connections need this one.
    """
    authenticate = connection._sasl_authenticate

    async def authenticate_anew(_timeout_at: float | None = None) -> None:
        try:
            new = await _in_thread(connection.net, password)
        except ChangefeedError as error:
            missing = RenewedLoginError(str(error))
            missing.no_password = error
            raise missing from error
        settings = connection.config
        settings["sasl_plain_password"] = new
        if isinstance(provider := settings["sasl_oauth_token_provider"], TokenExtensions):
            settings["sasl_oauth_token_provider"] = _Token(new, provider.of_login)
        try:
            await authenticate()  # its timeout begins now
        except kafka.errors.SaslAuthenticationFailedError as error:
            text = "(not shown: it repeats the password)" if new in str(error) else str(error)
            raise RenewedLoginError(text) from None
        finally:
            settings["sasl_plain_password"], settings["sasl_oauth_token_provider"] = "", provider

    connection._sasl_authenticate = authenticate_anew


async def _in_thread(net: Any, call: Callable[[], str]) -> str:
    result = Future()

    def answer() -> None:
        error: BaseException | None = None
        value = ""
        try:
            value = call()
        except BaseException as raised:
            error = raised

        def give() -> None:
            if error is None:
                result.success(value)
            else:
                result.failure(error)

        with suppress(Exception):  # the client was closed meanwhile, or its loop has crashed
            net.call_soon_threadsafe(give)

    Thread(target=answer, name="changefeed-kafka-password", daemon=True).start()
    value: str = await result
    return value


def _receive(connection: socket.socket) -> tuple[bytes, Exception | None]:
    """The received bytes, up to a megabyte plus the bytes that TLS has decrypted already; if there are none, the error
    of the connection."""
    parts: list[bytes] = []
    left = _READ_BYTES
    while left > 0 or (isinstance(connection, ssl.SSLSocket) and connection.pending()):
        try:
            part = connection.recv(_RECV_BYTES)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            break
        except OSError as error:
            return b"".join(parts), None if parts else kafka.errors.KafkaConnectionError(error)
        if not part:
            return b"".join(parts), None if parts else kafka.errors.KafkaConnectionError("socket disconnected")
        parts.append(part)
        left -= len(part)
    return b"".join(parts), None


class FinishedRecords:
    """A finished record batch in place of kafka-python's MemoryRecordsBuilder, with the methods that kafka-python
    calls.

    The producer's id, epoch and first sequence number, the transactional bit and the CRC-32C are filled in when it is
    sent for the first time, and never again: if the batch is sent again, it must have the same bytes, because the
    broker recognizes it by these fields. Raises ValueError for bytes that are not one batch of ``messages`` records.
    """

    def __init__(self, batch: bytes | bytearray, messages: int) -> None:
        if len(batch) < HEAD_BYTES:
            raise ValueError(f"{len(batch)} bytes are no record batch")
        _, length, _, magic, _, _, last, *_, count = HEAD.unpack_from(batch)
        if (length, magic, last + 1, count) != (len(batch) - 12, 2, messages, messages):
            raise ValueError(
                f"a record batch of {messages} messages and {len(batch)} bytes says that it is of magic {magic} and "
                f"has {count} messages, the last at {last}, and {length} bytes after its length"
            )
        self._batch = batch
        self._messages = messages
        self._closed = False
        self.producer_id = self.producer_epoch = self.base_sequence = _NONE

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, in_transaction: bool
    ) -> None:
        """Called once, before `close`, when the batch is about to be sent."""
        if self._closed:
            raise kafka.errors.IllegalStateError("a batch that was sent may not get another sequence number")
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        fields = HEAD.unpack_from(self._batch)
        attributes = fields[5] | _TRANSACTIONAL if in_transaction else fields[5] & ~_TRANSACTIONAL
        producer = (producer_id, producer_epoch, base_sequence)
        head = HEAD.pack(*fields[:5], attributes, *fields[6:9], *producer, fields[12])
        records = bytes(memoryview(self._batch)[HEAD_BYTES:])
        checksum = google_crc32c.extend(google_crc32c.value(head[_CHECKSUMMED_AT:]), records)
        self._batch = b"".join([head[:_CRC_AT], checksum.to_bytes(4, "big"), head[_CHECKSUMMED_AT:], records])

    def close(self) -> None:
        """Called each time the batch is sent, and when the producer stops trying to send it."""
        self._closed = True

    def buffer(self) -> bytes | bytearray:
        """The bytes that are sent."""
        return self._batch

    def size_in_bytes(self) -> int:
        """The size of the batch in a request, in bytes."""
        return len(self._batch)

    def next_offset(self) -> int:
        """The number of records, by which the producer's sequence number rises."""
        return self._messages

    def compression_rate(self) -> float:
        """Unused: kafka-python calls it for statistics, which are off."""
        return 1.0

    def is_full(self) -> bool:
        """Always true: no record can be added."""
        return True

    def append(self, *_record: object) -> None:
        """None: kafka-python puts the record into another batch."""


class _FinishedBatch(ProducerBatch):  # type: ignore[misc]
    """A batch of the accumulator that kafka-python never splits.

    Otherwise it would split a batch of several records that is too large, build the halves message by message, and
    never report the delivery of this batch.
    """

    @property
    def record_count(self) -> int:
        """Always 1: kafka-python uses it to decide about a split and for statistics. Sequence numbers use
        `next_offset`."""
        return 1


class InnerProducer:
    """A transactional `kafka.KafkaProducer`, and the internals that `Transactions` needs.

    All methods raise kafka-python's errors.
    """

    def __init__(self, settings: dict[str, Any], topics: Collection[str]) -> None:
        self._producer = kafka.KafkaProducer(
            **settings,
            metrics_enabled=False,
            max_in_flight_requests_per_connection=5,  # more would lose the order, even with idempotence
            max_request_size=LARGEST_REQUEST_BYTES,
            batch_size=SMALL_RECORD_BYTES,
        )
        self.ask_for(topics)
        self._sender, self._accumulator = self._producer._sender, self._producer._accumulator
        self._manager = self._producer._transaction_manager
        self._manager._supports_epoch_bump = lambda: False

    def ask_for(self, topics: Collection[str]) -> None:
        """Request the metadata of all ``topics`` at once; see `_ask_for`."""
        _ask_for(self._producer, topics)

    def is_well(self) -> bool:
        """Whether it is between two transactions, and has no connection that it failed to open again; see
        `kept_clients`."""
        return self._manager._current_state == TransactionState.READY and producer_is_well(self._producer)

    @property
    def error(self) -> Exception | None:
        """The error that broke the transaction or the producer."""
        error: Exception | None = self._manager.last_error if self._manager.has_error() else None
        return error

    def take_over(self) -> None:
        """Fence earlier producers; raises an error after max_block_ms. If it was called before, the later producers are
        fenced too: as in a new producer, no memory of the earlier transactions is left."""
        if self._manager._current_state == TransactionState.READY:
            self._manager._current_state = TransactionState.UNINITIALIZED
            self._manager._last_acked_offset.clear()
            self._producer._init_transactions_result = None
        self._producer.init_transactions()

    def rest(self) -> None:
        """Forget the partitions that it has written to. Otherwise the sender asks for the leader of each of them again
        and again, at the pace of its backoff, while it has none."""
        self._accumulator._batches.clear()

    def begin(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    def send_batch(self, topic: str, partition: int, records: FinishedRecords, done: Done) -> None:
        """Queue a finished batch after the batches that are queued for its partition, in the open transaction.

        A partition has one batch in flight at a time, as with kafka-python's idempotence (guarantee_message_order), so
        sequence numbers follow the order of this queue. ``done`` is called in the sender's thread.
        """
        to = kafka.TopicPartition(topic, partition)
        self._sender.add_topic(topic)
        self._manager.maybe_add_partition_to_transaction(to)  # not sent before the coordinator has accepted it
        batch = _FinishedBatch(to, records)
        with self._accumulator._tp_lock(to):
            self._accumulator._batches[to].append(batch)
            self._accumulator._incomplete.add(batch)
        self._sender.wakeup()

        def take_answer(result: tuple[int, int, Callable[[int], Exception] | None]) -> None:
            first, _timestamp, errors = result
            done(None, errors(0)) if errors else done(first, None)

        batch.produce_future.add_callback(take_answer)

    def send(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes]],
        done: Done,
    ) -> None:
        """Queue one record in the open transaction: a small one in a batch that kafka-python builds, others as a
        finished batch. kafka-python accepts no record without key and value, needs a second for the checksum of 6 MB,
        and knows no partition that was added since it asked."""
        is_small = len(key or b"") + len(value or b"") <= SMALL_RECORD_BYTES
        is_known = partition in (self._producer._metadata.partitions_for_topic(topic) or ())
        if not (is_small and is_known) or (key is None and value is None):
            self.send_batch(topic, partition, FinishedRecords(_batch_of(key, value, headers), 1), done)
            return
        future = self._producer.send(topic, value, key, headers, partition)
        future.add_callback(lambda record: done(record.offset, None)).add_errback(lambda error: done(None, error))

    def commit(self, seconds: float) -> None:
        """Commit; all queued records must be delivered. Raises KafkaTimeoutError when ``seconds`` are over."""
        self._complete(self._manager.begin_commit, seconds)

    def abort(self, seconds: float) -> None:
        """Drop unsent batches and abort. Raises KafkaTimeoutError when ``seconds`` are over."""
        self._complete(self._manager.begin_abort, seconds)

    def _complete(self, begin: Callable[[], Any], seconds: float) -> None:
        result = begin()
        self._sender.wakeup()
        if not result.wait(timeout_ms=seconds * 1000):
            raise kafka.errors.KafkaTimeoutError(f"the coordinator did not answer within {seconds:g} seconds")

    def close(self) -> None:
        """Drop queued records and wait for up to a second for the sender's thread to end; later it ends by itself."""
        end(self._producer, _CLOSE_SECONDS)


def plain_producer(settings: dict[str, Any], topic: str) -> kafka.KafkaProducer:
    """A producer that requests the metadata of ``topic`` at once. Raises kafka-python's errors."""
    producer = kafka.KafkaProducer(**settings, metrics_enabled=False)
    _ask_for(producer, [topic])
    return producer


def end(producer: kafka.KafkaProducer, seconds: float) -> None:
    """Drop queued records and wait up to ``seconds`` for the sender's thread to end; later it ends by itself.

    `close` of kafka-python waits for queued batches, and leaves everything open at its timeout.
    """
    producer._sender.force_close()
    producer._sender.join(seconds)
    producer._accumulator.abort_incomplete_batches()
    producer.close(timeout=0)


def _ask_for(producer: kafka.KafkaProducer, topics: Collection[str]) -> None:
    """Request the metadata of all ``topics`` at once: kafka-python needs a tenth of a second for each.

    It also stops metadata requests from creating missing topics: kafka-python allows that, whatever its option says.
    """
    cluster = producer._metadata
    cluster.config["allow_auto_create_topics"] = False
    cluster.set_topics(topics)


def _batch_of(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]) -> bytes:
    """A finished batch of one record, with the current time as its timestamp."""
    now_ms = int(time.time() * 1000)
    return record_batch(encode_records([Record(now_ms, key, value, headers)]), 1, CODECS["none"], Times(now_ms, now_ms))


def take_over(admin: KafkaAdminClient, names: Iterable[str], seconds: float, timeout_ms: int) -> None:
    """Fence all producers with the transactional ids ``names``, and abort their open transactions.

    ``timeout_ms`` is their transaction.timeout.ms from then on, until a producer sets its own. A broker refuses a
    timeout above its transaction.max.timeout.ms, even if no transaction is begun.

    This is `init_transactions` for many ids over one connection: a producer for each id would need a thread and two
    connections. Raises kafka-python's errors; KafkaTimeoutError when ``seconds`` are over.
    """
    admin._manager.run(_take_over, admin._manager, list(names), time.monotonic() + seconds, timeout_ms)


async def _take_over(manager: Any, names: list[str], deadline: float, timeout_ms: int) -> None:
    while names:
        ready, again = await _coordinators(manager, names)
        for part in (ready[at : at + _AT_ONCE] for at in range(0, len(ready), _AT_ONCE)):
            sent = [(name, manager.send(_init_producer_id(name, timeout_ms), node_id=node)) for name, node in part]
            for name, future in sent:
                try:
                    _raise_for((await future).error_code, name)
                except kafka.errors.RetriableError as error:
                    again[name] = error
        names = list(again)
        if names:
            if time.monotonic() > deadline:
                raise kafka.errors.KafkaTimeoutError(str(again[names[0]])) from again[names[0]]
            await manager._net.sleep(_LOOK_AGAIN_SECONDS)


async def _coordinators(manager: Any, names: list[str]) -> tuple[list[tuple[str, int]], dict[str, Exception]]:
    """The coordinators by transactional id, and the errors by id of the others."""
    known: list[tuple[str, int]] = []
    others: dict[str, Exception] = {}
    try:
        if manager.broker_version_data.api_version(FindCoordinatorRequest) >= 4:  # Kafka 3.0
            answer = await manager.send(_find(coordinator_keys=names, min_version=4))
            answers = [(coordinator.key, coordinator) for coordinator in answer.coordinators]
        else:
            answers = [(name, await manager.send(_find(key=name, max_version=3))) for name in names]
    except kafka.errors.RetriableError as error:
        return [], dict.fromkeys(names, error)
    for name, coordinator in answers:
        try:
            _raise_for(coordinator.error_code, name)
        except kafka.errors.RetriableError as error:
            others[name] = error
        else:
            known.append((name, coordinator.node_id))
    return known, others


def _raise_for(code: int, name: str) -> None:
    if code:
        raise kafka.errors.for_code(code)(f"transactional id {name!r}")


def _find(**keys: Any) -> Any:
    return FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION.value, **keys)


def _init_producer_id(name: str, timeout_ms: int) -> Any:
    return InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=_NONE,
        producer_epoch=_NONE,
        max_version=4,
    )
