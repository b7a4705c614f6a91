# SPDX-License-Identifier: Apache-2.0
# drives: 1
# env: TARN_LC_DEBUG_INTERVAL=2
"""Lifecycle rules are carried out: expirations by prefix, tag and size, versions, delete markers, uploads; locked versions stay. A day is two seconds."""
import time

from tarnwire import case, client, eq, main, md5_base64, refused, true

C = client()


def rules(bucket, *inner):
    body = "".join(f"<Rule><ID>r{i}</ID><Status>Enabled</Status>{r}</Rule>" for i, r in enumerate(inner))
    r = C.request("PUT", f"/{bucket}", {"lifecycle": ""}, body=f"<LifecycleConfiguration>{body}</LifecycleConfiguration>".encode())
    eq(r.status, 200, f"{r}")


def until(what, holds, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return
        time.sleep(0.2)
    true(holds(), what)


def versions(bucket):
    root = C.get(bucket, query={"versions": ""}).xml()
    return [(e.tag, e.findtext("Key"), e.findtext("VersionId")) for e in root if e.tag in ("Version", "DeleteMarker")]


def enable(bucket):
    eq(C.request("PUT", f"/{bucket}", {"versioning": ""}, body=b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>").status, 200)


DAY = "<Expiration><Days>1</Days></Expiration>"


@case
def configuration():
    b = C.new_bucket()
    refused(C.get(b, query={"lifecycle": ""}), 404, "NoSuchLifecycleConfiguration")
    rules(b, "<Filter><Prefix>a/</Prefix></Filter>" + DAY.replace("1", "30"))
    root = C.get(b, query={"lifecycle": ""}).xml()
    eq((root.findtext("Rule/ID"), root.findtext("Rule/Filter/Prefix"), root.findtext("Rule/Expiration/Days")), ("r0", "a/", "30"))
    r = C.put(b, "a/k", b"x")
    true('rule-id="r0"' in r.headers["x-amz-expiration"], "PUT says when it expires")
    true('rule-id="r0"' in C.head(b, "a/k").headers["x-amz-expiration"], "so does HEAD")
    eq(C.put(b, "b", b"x").headers["x-amz-expiration"], None)
    eq(C.delete(b, query={"lifecycle": ""}).status, 204)
    refused(C.get(b, query={"lifecycle": ""}), 404, "NoSuchLifecycleConfiguration")
    eq(C.head(b, "a/k").headers["x-amz-expiration"], None)


@case
def expiration_by_filter():
    b = C.new_bucket()
    C.put(b, "tmp/a", b"x")
    C.put(b, "keep", b"x")
    C.put(b, "tagged", b"x", {"x-amz-tagging": "gone=yes"})
    C.put(b, "large", b"x" * 5000)
    C.put(b, "small", b"x" * 10)
    rules(b, "<Filter><Prefix>tmp/</Prefix></Filter>" + DAY, "<Filter><Tag><Key>gone</Key><Value>yes</Value></Tag></Filter>" + DAY,
          "<Filter><ObjectSizeGreaterThan>4999</ObjectSizeGreaterThan></Filter>" + DAY)
    until("what the rules take in is gone", lambda: C.keys(b) == ["keep", "small"])
    time.sleep(3)
    eq(C.keys(b), ["keep", "small"], "and nothing else")


@case
def a_disabled_rule_does_nothing():
    b = C.new_bucket()
    C.put(b, "k", b"x")
    body = b"<LifecycleConfiguration><Rule><Status>Disabled</Status><Filter/><Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>"
    eq(C.request("PUT", f"/{b}", {"lifecycle": ""}, body=body).status, 200)
    time.sleep(4)
    eq(C.keys(b), ["k"])


@case
def versioned_buckets():
    b = C.new_bucket()
    enable(b)
    v = C.put(b, "k", b"1").headers["x-amz-version-id"]
    rules(b, "<Filter/>" + DAY)
    until("a delete marker hides it", lambda: C.keys(b) == [])
    eq([k for k, _, _ in versions(b)], ["DeleteMarker", "Version"])
    eq(C.get(b, "k", {"versionId": v}).body, b"1", "the version is still there")
    rules(b, "<Filter/><NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>",
          "<Filter/><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>")
    until("the version goes, then the marker that stands alone", lambda: versions(b) == [])


@case
def newer_noncurrent_versions_stay():
    b = C.new_bucket()
    enable(b)
    ids = [C.put(b, "k", str(i).encode()).headers["x-amz-version-id"] for i in range(6)]
    rules(b, "<Filter/><NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays><NewerNoncurrentVersions>2</NewerNoncurrentVersions></NoncurrentVersionExpiration>")
    until("the current one and the two before it", lambda: [v for _, _, v in versions(b)] == [ids[5], ids[4], ids[3]])
    time.sleep(3)
    eq([v for _, _, v in versions(b)], [ids[5], ids[4], ids[3]])


@case
def locked_versions_stay():
    b = C.new_bucket(headers={"x-amz-bucket-object-lock-enabled": "true"})
    C.put(b, "k", b"1")
    v = C.put(b, "k", b"2", {"x-amz-object-lock-legal-hold": "ON", "Content-MD5": md5_base64(b"2")}).headers["x-amz-version-id"]
    true(v, "a held version")
    C.put(b, "k", b"3")
    rules(b, "<Filter/><NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>")
    until("the free one goes", lambda: len(versions(b)) == 2)
    time.sleep(3)
    eq([x for _, _, x in versions(b)][1], v, "the held one stays")
    eq(C.request("PUT", f"/{b}/k", {"legal-hold": "", "versionId": v}, body=b"<LegalHold><Status>OFF</Status></LegalHold>").status, 200)
    until("until it is let go", lambda: len(versions(b)) == 1)


@case
def unfinished_uploads():
    b = C.new_bucket()
    C.post(b, "a/x", query={"uploads": ""})
    C.post(b, "b/x", query={"uploads": ""})
    rules(b, "<Filter><Prefix>a/</Prefix></Filter><AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>")
    until("the upload under a/ is aborted", lambda: C.get(b, query={"uploads": ""}).texts("Upload/Key") == ["b/x"])


@case
def more_than_a_step():
    b = C.new_bucket()
    for i in range(1100):
        C.put(b, f"x/{i:04}", b"x")
    C.put(b, "y", b"x")
    rules(b, "<Filter><Prefix>x/</Prefix></Filter>" + DAY)
    until("all of them", lambda: C.keys(b) == ["y"], 40)


main()
