from kvnode.models.workloads import corpus


def test_folder_is_the_one_the_environment_names(monkeypatch, tmp_path):
    monkeypatch.setenv("KVNODE_TRACES", str(tmp_path))
    assert corpus.traces_folder() == tmp_path


def test_folder_is_beside_the_checkout_by_default(monkeypatch):
    monkeypatch.delenv("KVNODE_TRACES", raising=False)
    folder = corpus.traces_folder()
    assert folder.parts[-2:] == ("shared", "traces")


def test_trace_is_found_by_the_beginning_of_its_name(monkeypatch, tmp_path):
    monkeypatch.setenv("KVNODE_TRACES", str(tmp_path))
    (tmp_path / "chat_b.jsonl.gz").touch()
    (tmp_path / "chat_a.jsonl.gz").touch()
    assert corpus.find_trace("chat") == tmp_path / "chat_a.jsonl.gz"
    assert corpus.find_trace("agent") is None


def test_missing_folder_has_no_traces(monkeypatch, tmp_path):
    monkeypatch.setenv("KVNODE_TRACES", str(tmp_path / "nowhere"))
    assert corpus.find_trace("chat") is None
