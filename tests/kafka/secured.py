"""A broker that wants to know who asks: a listener with TLS and SASL beside the plain one, and ACLs.

Who comes through the plain listener is anonymous and may do everything; that is how tests look on. Who comes through
the secured one may do what `allow` was told, and nothing else.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.kafka.broker import Broker
from tests.kafka.servers import JavaServer, Server, free_ports

ANSWER_WITHIN_S = 30.0
LOGIN = "org.apache.kafka.common.security"


class Certificates:
    """An authority of our own, a server certificate for 127.0.0.1 that it signed, and a stranger's authority."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = self._authority("authority")
        self.stranger = self._authority("stranger")
        self.server = folder / "server.pem"
        """Key and certificate in one file, as the broker takes them."""
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        self._openssl("req -new -newkey rsa:2048 -nodes -subj /CN=broker -keyout server.key -out server.csr")
        sign = "x509 -req -days 2 -in server.csr -CA authority.crt -CAkey authority.key -CAcreateserial"
        self._openssl(f"{sign} -extfile names -out server.crt")
        self.server.write_text((folder / "server.key").read_text() + (folder / "server.crt").read_text())

    def _authority(self, name: str) -> Path:
        subject = f"-subj /CN={name} -keyout {name}.key -out {name}.crt"
        self._openssl(f"req -x509 -newkey rsa:2048 -nodes -days 2 {subject}")
        return self._folder / f"{name}.crt"

    def _openssl(self, arguments: str) -> None:
        command = ["openssl", *arguments.split()]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")


class SecuredBroker(Broker):
    """A broker of our own, from Kafka's jars, whose `bootstrap` is for the tests and `secured` for who must ask.

    Entering raises Unavailable without Java.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(own=True)
        self._certificates = Certificates(folder)
        self.authority, self.stranger = self._certificates.authority, self._certificates.stranger
        self.secured = ""

    def add_users(self, names: Iterable[str], password: str) -> None:
        """Let these in by SCRAM-SHA-512; the fewest iterations that Kafka allows are enough for a test."""
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        new = [UserScramCredentialUpsertion(name, how, password=password.encode()) for name in names]
        admin = self.admin()
        for future in admin.alter_user_scram_credentials(new).values():
            future.result(ANSWER_WITHIN_S)

    def allow(self, grants: Iterable[tuple[str, str, str, str]]) -> None:
        """Each (user, operations such as "READ DESCRIBE", type of resource, its name) is allowed from now on."""
        bindings = [
            AclBinding(
                ResourceType[kind],
                name,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                AclOperation[operation],
                AclPermissionType.ALLOW,
            )
            for user, operations, kind, name in grants
            for operation in operations.split()
        ]
        admin = self.admin()
        for future in admin.create_acls(bindings).values():
            future.result(ANSWER_WITHIN_S)

    def _open(self) -> Server:
        plain, secured, controller = free_ports(3)
        self.secured = f"127.0.0.1:{secured}"
        advertised = f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://{self.secured}"
        server = JavaServer(
            {
                "listeners": f"{advertised},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": advertised,
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
                # Told nothing else, this one takes tokens that nobody signed, such as a test can make.
                "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
                    f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required;"
                ),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._certificates.server),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                # The plain listener and the controller's do not ask for names.
                "super.users": "User:ANONYMOUS",
            }
        )
        server.bootstrap = f"127.0.0.1:{plain}"
        server.start()
        return server
