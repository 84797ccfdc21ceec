"""What a server lets strangers do, asked of the real Triton: no more than it must."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from tests.triton import throwaway
from tests.triton.throwaway import add_model, serving
from trtspec.config.serving import Serving
from trtspec.triton import access
from trtspec.triton.server import TritonServer
from trtspec.triton.stubs import running_models


class TestArguments:
    def test_groups_are_closed_with_a_key_that_nobody_knows(self) -> None:
        first, second = access.options([]), access.options([])
        assert [word.split("=")[0] for word in first] == list(access.FLAGS)
        assert first != second
        assert all("=shared-memory,trace,logging:closed=" in word for word in first)

    def test_who_restricts_a_protocol_himself_is_left_to_it(self) -> None:
        own = "--http-restricted-api=inference:token=s3cret"
        http, grpc_ = access.options([own])[::-1]
        assert http == own
        assert grpc_.startswith("--grpc-restricted-protocol=")

    @pytest.mark.parametrize("word", ["--grpc-use-ssl=true", "--log-verbose=1", "--http-restricted-api=health:a=b"])
    def test_more_arguments_for_the_server(self, word: str) -> None:
        assert Serving(server_args=(word,)).server_args == (word,)

    @pytest.mark.parametrize(
        ("word", "said"),
        [
            ("--http-port=1", "--http-port is set by trtspec"),
            ("--model-repository=/elsewhere", "--model-repository is set by trtspec"),
            ("--grpc-use-ssl true", "is not of the form"),
            ("true", "is not of the form"),
            ("--log-file=a\nb", "is not of the form"),
        ],
    )
    def test_but_not_those_that_are_set_already(self, word: str, said: str) -> None:
        with pytest.raises(ValueError, match=said):
            Serving(server_args=(word,))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("safety")
    repository = throwaway.add_a_pair(folder / "repository")
    with TritonServer.start(repository, serving(), folder / "triton.log") as found:
        yield found


def post(server: TritonServer, path: str, document: Any = None, **headers: str) -> tuple[int, str]:
    """Status and text of an answer."""
    host, _, port = server.http_url.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        connection.request("POST", path, json.dumps(document or {}), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def listening(port: int) -> set[str]:
    """Addresses on which somebody listens at a port, as the kernel writes them."""
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}


@pytest.mark.triton
class TestServer:
    def test_only_this_machine_reaches_it(self, server: TritonServer) -> None:
        four = socket.inet_aton("127.0.0.1")[::-1].hex().upper()
        loopback = {four, f"{'0' * 16}FFFF0000{four}"}
        for url in (server.http_url, server.grpc_url, server.metrics_url.split("/")[2]):
            found = listening(int(url.split(":")[1]))
            assert found
            assert found <= loopback

    @pytest.mark.parametrize("verb", ["load", "unload"])
    def test_nobody_changes_the_models(self, server: TritonServer, verb: str) -> None:
        code = {"parameters": {"config": "{}", "file:1/model.py": "eA=="}}
        status, said = post(server, f"/v2/repository/models/ensemble/{verb}", code)
        assert (status, "not allowed" in said) == (503, True)
        assert {model.state for model in server.models()} == {"READY"}

    @pytest.mark.parametrize("path", ["logging", "trace/setting", "systemsharedmemory/region/x/register"])
    def test_nobody_maps_memory_traces_or_silences_the_log(self, server: TritonServer, path: str) -> None:
        change = {"log_verbose_level": 1, "log_error": False, "key": "/x", "offset": 0, "byte_size": 8}
        assert post(server, f"/v2/{path}", change)[0] == 403
        assert post(server, f"/v2/{path}", change, closed="a guess")[0] == 403

    def test_nor_over_grpc(self, server: TritonServer) -> None:
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            for forbidden in (
                lambda: client.register_system_shared_memory("x", "/x", 8),
                lambda: client.update_log_settings({"log_error": False}),
                lambda: client.update_trace_settings(settings={"trace_level": ["TENSORS"]}),
            ):
                with pytest.raises(InferenceServerException) as caught:
                    forbidden()
                assert caught.value.status() == str(grpc.StatusCode.UNAVAILABLE)
            assert client.is_server_ready()

    def test_what_passes_through_memory_is_nobody_elses(self, server: TritonServer) -> None:
        [prefix] = [w for w in Path(f"/proc/{server.pid}/cmdline").read_text().split("\0") if "shm-region" in w]
        regions = list(Path("/dev/shm").glob(f"{prefix.rpartition('=')[2]}*"))
        assert len(regions) >= len(running_models(server.pid))
        assert {region.stat().st_mode & 0o777 for region in regions} == {0o600}
        assert server.log.stat().st_mode & 0o777 == 0o600

    def test_no_process_of_it_dumps_its_memory(self, server: TritonServer) -> None:
        stubs = [p.parent.name for p in Path("/proc").glob("[0-9]*/stat") if _parent(p) == server.pid]
        assert len(stubs) >= len(running_models(server.pid))
        for pid in (str(server.pid), *stubs):
            limits = Path(f"/proc/{pid}/limits").read_text()
            [core] = [row for row in limits.splitlines() if row.startswith("Max core file size")]
            assert core.split()[4] == "0"

    def test_a_large_http_body_is_not_its_end(self, server: TritonServer) -> None:
        """With the usual stack of 8 MiB, 4 MB end a Triton 2.51."""
        body = {"text_input": "say " + "x" * (8 << 20), "max_tokens": 2, "stream": False}
        assert post(server, "/v2/models/ensemble/generate", body)[0] == 200
        assert server.running


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.triton
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_tls_and_a_token_through_tritons_own_arguments(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(made, check=True)
    arguments = (
        "--grpc-use-ssl=true",
        f"--grpc-server-cert={cert}",
        f"--grpc-server-key={key}",
        "--grpc-restricted-protocol=inference,shared-memory,trace,logging:token=s3cret",
    )
    repository = add_model(tmp_path / "repository", "idle", throwaway.IDLE)
    with TritonServer.start(repository, serving(server_args=arguments), tmp_path / "triton.log") as server:
        port = server.grpc_url.split(":")[1]
        with pytest.raises(InferenceServerException), tritonclient.grpc.InferenceServerClient(server.grpc_url) as plain:
            plain.is_server_live(client_timeout=5)
        with tritonclient.grpc.InferenceServerClient(
            f"localhost:{port}", ssl=True, root_certificates=str(cert)
        ) as client:
            assert client.is_server_live()
            word = tritonclient.grpc.InferInput("text_input", [1, 1], "BYTES")
            word.set_data_from_numpy(np.array([[b"x"]], dtype=np.object_))
            said = []
            for token in ({}, {"triton-grpc-protocol-token": "s3cret"}):
                with pytest.raises(InferenceServerException) as caught:
                    client.infer("idle", [word], headers=token)
                said.append(str(caught.value))
            assert "restricted" in said[0]
            assert "restricted" not in said[1]  # the next refusal: the model is decoupled
