"""Options of a Kafka connection, named as in librdkafka and translated for kafka-python.

librdkafka's options: https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md
"""

from __future__ import annotations

import importlib.util
import re
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from changefeed.errors import SettingsError, did_you_mean
from changefeed.kafka.client_internals import TokenExtensions
from changefeed.model.connection import quote_option
from changefeed.model.tls import add_authorities, is_pem, present_certificate

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER")
_EXTENSIONS = "sasl.oauthbearer.extensions"
_BOOLEANS = {"true": True, "false": False}

_SECURITY = {
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.service.name",
    _EXTENSIONS,
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
    "ssl.crl.location",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
}
_TEXTS = {"client.id": "client_id"}
_NUMBERS = {
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "socket.timeout.ms": "request_timeout_ms",
}
_SOCKET_NUMBERS = {
    "socket.send.buffer.bytes": (socket.SOL_SOCKET, socket.SO_SNDBUF),
    "socket.receive.buffer.bytes": (socket.SOL_SOCKET, socket.SO_RCVBUF),
}
_SOCKET_SWITCHES = ("socket.keepalive.enable", "socket.nagle.disable")

OPTIONS = sorted({*_SECURITY, *_TEXTS, *_NUMBERS, *_SOCKET_NUMBERS, *_SOCKET_SWITCHES, "client.rack"})

_SECRET_WORDS = ("password", "secret", "pem", "token", "jaas", "oauthbearer")


def is_secret(option: str) -> bool:
    """Whether the value of ``option`` is a secret, which no output may show."""
    return any(word in option for word in _SECRET_WORDS)


def client_settings(options: Mapping[str, str], *, renews_password: bool = False) -> dict[str, Any]:
    """``options`` as keyword arguments that all clients of kafka-python take. Files of keys and certificates are read.

    With ``renews_password`` the password or token is not in the options, because each login gets a new one. Raises
    SettingsError for an unsupported option or value; its message has no secret.
    """
    for name in options:
        if name not in OPTIONS:
            raise _unknown(name)
    settings: dict[str, Any] = {ours: options[name] for name, ours in _TEXTS.items() if name in options}
    settings |= {ours: _number(options, name) for name, ours in _NUMBERS.items() if name in options}
    settings["socket_options"] = _socket_options(options)
    return settings | _security(options, renews_password)


def _unknown(name: str) -> SettingsError:
    nearest = did_you_mean(name, OPTIONS)
    if name.startswith(("sasl.", "ssl.", "enable.sasl.", "https.")) and not nearest:
        return SettingsError(
            f"option {name!r} of the Kafka connection is not supported: changefeed's client, kafka-python, has no "
            f"such option, and it decides who may connect. Supported security options: {', '.join(sorted(_SECURITY))}"
        )
    return SettingsError(
        f"changefeed's client, kafka-python, has no such option of the Kafka connection, {quote_option(name)}{nearest}."
        f" Leave it out. Options are named as librdkafka's; there are: {', '.join(OPTIONS)}"
    )


def _wrong(options: Mapping[str, str], name: str, expected: str) -> SettingsError:
    shown = "" if is_secret(name) else f" is {options[name]!r}"
    return SettingsError(f"an option of the Kafka connection is wrong: {name!r}{shown}, expected {expected}")


def _number(options: Mapping[str, str], name: str) -> int:
    if not options[name].isdecimal():
        raise _wrong(options, name, "a whole number")
    return int(options[name])


def _switch(options: Mapping[str, str], name: str, default: bool) -> bool:
    value = options.get(name, str(default)).lower()
    if value not in _BOOLEANS:
        raise _wrong(options, name, "true or false")
    return _BOOLEANS[value]


def _one_of(options: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    if options[name].upper() not in known:
        raise _wrong(options, name, f"one of {', '.join(known)}{did_you_mean(options[name].upper(), known)}")
    return options[name].upper()


def _socket_options(options: Mapping[str, str]) -> list[tuple[int, int, int]]:
    chosen = [(*where, _number(options, name)) for name, where in _SOCKET_NUMBERS.items() if name in options]
    if _switch(options, "socket.nagle.disable", default=True):
        chosen.append((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1))
    if _switch(options, "socket.keepalive.enable", default=True):
        chosen.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
    return chosen


def _security(options: Mapping[str, str], renews_password: bool) -> dict[str, Any]:
    protocol = _one_of(options, "security.protocol", _PROTOCOLS) if "security.protocol" in options else "PLAINTEXT"
    asked = sorted(name for name in options if name.startswith(("sasl.", "ssl.", "enable.ssl.")))
    if asked and "security.protocol" not in options:
        raise SettingsError(
            f"an option of the Kafka connection would do nothing, {asked[0]!r}: without 'security.protocol' all is "
            f"sent in clear and without a login. Set that to one of {', '.join(_PROTOCOLS)}, or leave the option out"
        )
    settings: dict[str, Any] = {"security_protocol": protocol}
    if renews_password and not protocol.startswith("SASL_"):
        raise SettingsError(
            f"the Kafka connection is in `passwords` of the site's file, and logs in nowhere: its 'security.protocol' "
            f"is {protocol}. Set that to SASL_SSL, with a 'sasl.mechanism', or remove the entry"
        )
    if protocol.startswith("SASL_"):
        settings |= _login(options, renews_password)
    if protocol.endswith("SSL"):
        settings["ssl_context"] = _tls(options)
    return settings


def _login(options: Mapping[str, str], renews_password: bool) -> dict[str, Any]:
    name = "sasl.mechanisms" if "sasl.mechanisms" in options else "sasl.mechanism"
    if name not in options:
        raise SettingsError(
            f"an option of the Kafka connection is missing, 'sasl.mechanism': 'security.protocol' wants a login. One "
            f"of {', '.join(_MECHANISMS)}"
        )
    mechanism = _one_of(options, name, _MECHANISMS)
    if mechanism == "GSSAPI":
        if renews_password:
            raise SettingsError(
                "the Kafka connection is in `passwords` of the site's file, and logs in by GSSAPI, with a ticket "
                "instead of a password. Remove the entry"
            )
        if importlib.util.find_spec("gssapi") is None:
            raise SettingsError(
                f"an option of the Kafka connection is wrong: {name!r} is 'GSSAPI', and the package gssapi, which "
                "it needs, is not installed beside changefeed"
            )
        return {
            "sasl_mechanism": mechanism,
            "sasl_kerberos_service_name": options.get("sasl.kerberos.service.name", "kafka"),
        }
    if mechanism == "OAUTHBEARER":
        if not renews_password:
            raise SettingsError(
                "the Kafka connection logs in by OAUTHBEARER, with a token that expires, and nothing returns one: add "
                "the connection to `passwords` of the site's file, with a command or a function that does"
            )
        extensions = TokenExtensions(_token_extensions(options))
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": extensions}
    required = ("sasl.username",) if renews_password else ("sasl.username", "sasl.password")
    missing = [each for each in required if each not in options]
    if missing:
        raise SettingsError(f"options of the Kafka connection are missing: {mechanism} logs in with {missing}")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": options["sasl.username"],
        "sasl_plain_password": "" if renews_password else options["sasl.password"],
    }


def _token_extensions(options: Mapping[str, str]) -> dict[str, str]:
    """The key-value pairs that go with each token, such as `logicalCluster` of Confluent Cloud."""
    pairs = [pair.partition("=") for pair in options.get(_EXTENSIONS, "").split(",") if pair]
    if not all(re.fullmatch("[A-Za-z]+", name) and value.isprintable() and value for name, _, value in pairs):
        raise _wrong(options, _EXTENSIONS, "name=value,name=value, with names of letters")
    return {name: value for name, _, value in pairs}


def _tls(options: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    verified = _switch(options, "enable.ssl.certificate.verification", default=True)
    named = options.get("ssl.endpoint.identification.algorithm", "https")
    if named not in ("https", "none"):
        raise _wrong(options, "ssl.endpoint.identification.algorithm", "https or none")
    context.check_hostname = verified and named == "https"
    context.verify_mode = ssl.CERT_REQUIRED if verified else ssl.CERT_NONE
    _check_forms(options)
    _load_authorities(context, options)
    certificate = options.get("ssl.certificate.pem") or options.get("ssl.certificate.location")
    if certificate is not None:
        key, password = options.get("ssl.key.pem") or options.get("ssl.key.location"), options.get("ssl.key.password")
        names = "ssl.certificate.location, ssl.key.location and ssl.key.password"
        _load(names, lambda: present_certificate(context, certificate, key, password or ""))
    if "ssl.crl.location" in options:
        _load("ssl.crl.location", lambda: context.load_verify_locations(options["ssl.crl.location"]))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if "ssl.cipher.suites" in options:
        _load("ssl.cipher.suites", lambda: context.set_ciphers(options["ssl.cipher.suites"]))
    return context


def _check_forms(options: Mapping[str, str]) -> None:
    """Raise SettingsError for PEM text in place of a path, the reverse, and both."""
    for name in ("ssl.ca", "ssl.certificate", "ssl.key"):
        location, text = options.get(f"{name}.location"), options.get(f"{name}.pem")
        if location is not None and text is not None:
            raise SettingsError(
                f"options of the Kafka connection contradict each other: {f'{name}.location'!r} and {f'{name}.pem'!r}. "
                "Leave out one of them"
            )
        if location is not None and is_pem(location):
            raise SettingsError(
                f"{f'{name}.location'!r} of the Kafka connection is PEM text, expected a path. Name the option "
                f"{f'{name}.pem'!r}"
            )
        if text is not None and not is_pem(text):
            raise SettingsError(
                f"{name}.pem of the Kafka connection cannot be used: it is not PEM text. A path is for "
                f"{f'{name}.location'!r}"
            )


def _load_authorities(context: ssl.SSLContext, options: Mapping[str, str]) -> None:
    location = options.get("ssl.ca.location", "probe")
    if "ssl.ca.pem" in options:
        _load("ssl.ca.pem", lambda: add_authorities(context, options["ssl.ca.pem"]))
    elif location == "probe":
        context.load_default_certs()
    elif Path(location).is_dir():
        context.load_verify_locations(capath=location)
    else:
        _load("ssl.ca.location", lambda: context.load_verify_locations(location))


def _load(options: str, load: Any) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError; no message has the password
        raise SettingsError(
            f"{options} of the Kafka connection cannot be used: {error}. Are the files where this process runs, in "
            "PEM, and is the password right?"
        ) from None
