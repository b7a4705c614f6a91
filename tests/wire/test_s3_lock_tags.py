# SPDX-License-Identifier: Apache-2.0
# drives: 1
"""Object lock and tags: defaults, retention of both modes, legal holds, what can't be deleted; tag sets of objects and buckets."""
import datetime

from tarnwire import case, client, eq, main, md5_base64, refused, true

C = client()
LOCKED = {"x-amz-bucket-object-lock-enabled": "true"}


def soon(seconds=3600):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def xml(bucket, key, what, text, version=None, headers=None):
    q = {what: "", **({"versionId": version} if version else {})}
    return C.request("PUT", f"/{bucket}/{key}" if key else f"/{bucket}", q, headers, text.encode())


def retention(bucket, key, mode, until, version=None, bypass=False):
    return xml(bucket, key, "retention", f"<Retention><Mode>{mode}</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>" if mode else "<Retention/>",
               version, {"x-amz-bypass-governance-retention": "true"} if bypass else None)


BYPASS = {"x-amz-bypass-governance-retention": "true"}


@case
def configuration():
    b = C.new_bucket(headers=LOCKED)
    eq(C.get(b, query={"versioning": ""}).xml().findtext("Status"), "Enabled", "lock brings versioning")
    r = C.get(b, query={"object-lock": ""}).xml()
    eq((r.findtext("ObjectLockEnabled"), r.find("Rule")), ("Enabled", None))
    refused(xml(b, "", "versioning", "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>"), 409, "InvalidBucketState")
    rule = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>%s</DefaultRetention></Rule></ObjectLockConfiguration>"
    eq(xml(b, "", "object-lock", rule % "<Mode>GOVERNANCE</Mode><Days>2</Days>").status, 200)
    r = C.get(b, query={"object-lock": ""}).xml()
    eq((r.findtext("Rule/DefaultRetention/Mode"), r.findtext("Rule/DefaultRetention/Days")), ("GOVERNANCE", "2"))
    C.put(b, "k", b"x")
    r = C.head(b, "k")
    eq(r.headers["x-amz-object-lock-mode"], "GOVERNANCE", "the default goes to new objects")
    until = datetime.datetime.strptime(r.headers["x-amz-object-lock-retain-until-date"][:19], "%Y-%m-%dT%H:%M:%S")
    true(abs((until - datetime.datetime.utcnow()).total_seconds() - 2 * 86400) < 60, f"two days: {until}")
    for bad, code in (("<Mode>GOVERNANCE</Mode><Days>0</Days>", "InvalidArgument"), ("<Mode>GOVERNANCE</Mode><Years>-1</Years>", "InvalidArgument"),
                      ("<Mode>GOVERNANCE</Mode><Days>36501</Days>", "InvalidArgument"), ("<Mode>GOVERNANCE</Mode><Years>101</Years>", "InvalidArgument"),
                      ("<Mode>governance</Mode><Days>1</Days>", "MalformedXML"), ("<Mode>GOVERNANCE</Mode>", "MalformedXML"),
                      ("<Mode>GOVERNANCE</Mode><Days>1</Days><Years>1</Years>", "MalformedXML"), ("<Days>1</Days>", "MalformedXML")):
        refused(xml(b, "", "object-lock", rule % bad), 400, code, bad)
    for good in ("<Mode>GOVERNANCE</Mode><Days>36500</Days>", "<Mode>COMPLIANCE</Mode><Years>100</Years>"):
        eq(xml(b, "", "object-lock", rule % good).status, 200, good)
    plain = C.new_bucket()
    refused(C.get(plain, query={"object-lock": ""}), 404, "ObjectLockConfigurationNotFoundError")
    refused(xml(plain, "", "object-lock", rule % "<Mode>GOVERNANCE</Mode><Days>2</Days>"), 409, "InvalidBucketState")
    C.put(plain, "k", b"x")
    refused(C.get(plain, "k", {"retention": ""}), 400, "InvalidRequest")
    refused(retention(plain, "k", "GOVERNANCE", soon()), 400, "InvalidRequest")
    refused(C.put(plain, "k", b"x", {"x-amz-object-lock-legal-hold": "ON"}), 400, "InvalidRequest")
    eq(xml(plain, "", "versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>").status, 200)
    eq(xml(plain, "", "object-lock", "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>").status, 200, "later, on a versioned bucket")


@case
def governance():
    b = C.new_bucket(headers=LOCKED)
    v = C.put(b, "k", b"x").headers["x-amz-version-id"]
    refused(C.get(b, "k", {"retention": ""}), 404, "NoSuchObjectLockConfiguration")
    until = soon()
    eq(retention(b, "k", "GOVERNANCE", until, v).status, 200)
    r = C.get(b, "k", {"retention": ""}).xml()
    eq((r.findtext("Mode"), r.findtext("RetainUntilDate")[:19]), ("GOVERNANCE", until[:19]))
    refused(C.delete(b, "k", {"versionId": v}), 403, "AccessDenied")
    eq(C.delete(b, "k").headers["x-amz-delete-marker"], "true", "a marker hides it, and that is allowed")
    refused(retention(b, "k", "GOVERNANCE", soon(60), v), 403, "AccessDenied", "shorter")
    eq(retention(b, "k", "GOVERNANCE", soon(7200), v).status, 200, "longer")
    refused(retention(b, "k", "COMPLIANCE", soon(9000), v), 403, "AccessDenied", "another mode")
    eq(retention(b, "k", "GOVERNANCE", soon(60), v, bypass=True).status, 200, "shorter, for who may bypass")
    body = f"<Delete><Object><Key>k</Key><VersionId>{v}</VersionId></Object></Delete>".encode()
    eq(C.post(b, body=body, query={"delete": ""}).xml().findtext("Error/Code"), "AccessDenied")
    eq(C.delete(b, "k", {"versionId": v}, headers=BYPASS).status, 204)
    refused(C.get(b, "k", {"versionId": v}), 404, "NoSuchVersion")


@case
def compliance():
    b = C.new_bucket(headers=LOCKED)
    until = soon(3)
    r = C.put(b, "k", b"x", {"x-amz-object-lock-mode": "COMPLIANCE", "x-amz-object-lock-retain-until-date": until, "Content-MD5": md5_base64(b"x")})
    v = r.headers["x-amz-version-id"]
    eq(C.head(b, "k").headers["x-amz-object-lock-mode"], "COMPLIANCE")
    for bypass in (False, True):
        refused(C.delete(b, "k", {"versionId": v}, headers=BYPASS if bypass else None), 403, "AccessDenied")
        refused(retention(b, "k", "GOVERNANCE", soon(3600), v, bypass), 403, "AccessDenied")
        refused(retention(b, "k", None, None, v, bypass), 403, "AccessDenied")
    refused(C.delete(b), 409, "BucketNotEmpty")
    import time
    time.sleep(4)
    eq(C.delete(b, "k", {"versionId": v}).status, 204, "when its time is over")


@case
def legal_holds():
    b = C.new_bucket(headers=LOCKED)
    v = C.put(b, "k", b"x", {"x-amz-object-lock-legal-hold": "ON", "Content-MD5": md5_base64(b"x")}).headers["x-amz-version-id"]
    eq(C.head(b, "k").headers["x-amz-object-lock-legal-hold"], "ON")
    eq(C.get(b, "k", {"legal-hold": ""}).xml().findtext("Status"), "ON")
    refused(C.delete(b, "k", {"versionId": v}, headers=BYPASS), 403, "AccessDenied", "nobody bypasses a hold")
    eq(xml(b, "k", "legal-hold", "<LegalHold><Status>OFF</Status></LegalHold>", v).status, 200)
    eq(C.get(b, "k", {"legal-hold": ""}).xml().findtext("Status"), "OFF")
    for bad in ("<LegalHold><Status>on</Status></LegalHold>", "<LegalHold/>", "<X/>"):
        refused(xml(b, "k", "legal-hold", bad), 400, "MalformedXML", bad)
    eq(C.delete(b, "k", {"versionId": v}).status, 204)


@case
def lock_headers():
    b = C.new_bucket(headers=LOCKED)
    md5 = {"Content-MD5": md5_base64(b"x")}
    for h in ({"x-amz-object-lock-mode": "GOVERNANCE"}, {"x-amz-object-lock-retain-until-date": soon()},
              {"x-amz-object-lock-mode": "Governance", "x-amz-object-lock-retain-until-date": soon()},
              {"x-amz-object-lock-mode": "GOVERNANCE", "x-amz-object-lock-retain-until-date": soon(-60)},
              {"x-amz-object-lock-mode": "GOVERNANCE", "x-amz-object-lock-retain-until-date": "tomorrow"}, {"x-amz-object-lock-legal-hold": "on"}):
        refused(C.put(b, "k", b"x", {**h, **md5}), 400, "InvalidArgument", f"{h}")
    uid = C.post(b, "m", query={"uploads": ""}, headers={"x-amz-object-lock-mode": "GOVERNANCE", "x-amz-object-lock-retain-until-date": soon(), "x-amz-object-lock-legal-hold": "ON"}).xml().findtext("UploadId")
    tag = C.put(b, "m", b"x", query={"partNumber": "1", "uploadId": uid}).headers["ETag"]
    eq(C.post(b, "m", f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part></CompleteMultipartUpload>".encode(), {"uploadId": uid}).status, 200)
    r = C.head(b, "m")
    eq((r.headers["x-amz-object-lock-mode"], r.headers["x-amz-object-lock-legal-hold"]), ("GOVERNANCE", "ON"), "a multipart upload keeps them")
    eq(C.put(b, "c", headers={"x-amz-copy-source": f"{b}/m"}).status, 200)
    eq(C.head(b, "c").headers["x-amz-object-lock-mode"], None, "a copy doesn't inherit them")


def tags(**t):
    return "<Tagging><TagSet>" + "".join(f"<Tag><Key>{k}</Key><Value>{v}</Value></Tag>" for k, v in t.items()) + "</TagSet></Tagging>"


def tags_of(bucket, key="", version=None):
    r = C.get(bucket, key, {"tagging": "", **({"versionId": version} if version else {})})
    eq(r.status, 200, f"{r}")
    return {t.findtext("Key"): t.findtext("Value") or "" for t in r.xml().findall("TagSet/Tag")}


@case
def object_tags():
    b = C.new_bucket()
    C.put(b, "k", b"x", {"x-amz-tagging": "a=1&b=two%20words"})
    eq(tags_of(b, "k"), {"a": "1", "b": "two words"})
    etag = C.head(b, "k").headers["ETag"]
    eq(xml(b, "k", "tagging", tags(c="3", d="")).status, 200)
    eq((tags_of(b, "k"), C.head(b, "k").headers["ETag"], C.head(b, "k").headers["x-amz-tagging-count"]), ({"c": "3", "d": ""}, etag, "2"))
    eq(xml(b, "k", "tagging", tags(**{f"k{i}": "v" for i in range(10)})).status, 200, "ten")
    refused(xml(b, "k", "tagging", tags(**{f"k{i}": "v" for i in range(11)})), 400, "BadRequest", "eleven")
    refused(xml(b, "k", "tagging", tags(**{"k" * 129: "v"})), 400, "InvalidTag")
    refused(xml(b, "k", "tagging", tags(k="v" * 257)), 400, "InvalidTag")
    eq(xml(b, "k", "tagging", tags(**{"k" * 128: "v" * 256})).status, 200, "at the limits")
    refused(xml(b, "k", "tagging", "<Tagging><TagSet>" + "<Tag><Key>a</Key><Value>1</Value></Tag>" * 2 + "</TagSet></Tagging>"), 400, "InvalidTag", "the same key twice")
    refused(xml(b, "k", "tagging", tags(**{"aws:x": "1"})), 400, "InvalidTag")
    for bad in ("<Tagging/>", "<X/>", "<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>", ""):
        refused(xml(b, "k", "tagging", bad), 400, "MalformedXML", bad)
    eq(C.delete(b, "k", {"tagging": ""}).status, 204)
    eq((tags_of(b, "k"), C.head(b, "k").headers["x-amz-tagging-count"]), ({}, None))
    refused(C.get(b, "absent", {"tagging": ""}), 404, "NoSuchKey")
    refused(xml(b, "absent", "tagging", tags(a="1")), 404, "NoSuchKey")


@case
def tags_of_versions():
    b = C.new_bucket()
    xml(b, "", "versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
    v1 = C.put(b, "k", b"1", {"x-amz-tagging": "n=1"}).headers["x-amz-version-id"]
    v2 = C.put(b, "k", b"2", {"x-amz-tagging": "n=2"}).headers["x-amz-version-id"]
    r = xml(b, "k", "tagging", tags(n="1b"), v1)
    eq((r.status, r.headers["x-amz-version-id"]), (200, v1))
    eq((tags_of(b, "k", v1), tags_of(b, "k", v2), tags_of(b, "k")), ({"n": "1b"}, {"n": "2"}, {"n": "2"}))
    m = C.delete(b, "k").headers["x-amz-version-id"]
    refused(C.get(b, "k", {"tagging": "", "versionId": m}), 405, "MethodNotAllowed")


@case
def bucket_tags():
    b = C.new_bucket()
    refused(C.get(b, query={"tagging": ""}), 404, "NoSuchTagSet")
    eq(xml(b, "", "tagging", tags(**{f"k{i}": "v" for i in range(50)})).status, 204, "fifty")
    eq(len(tags_of(b)), 50)
    refused(xml(b, "", "tagging", tags(**{f"k{i}": "v" for i in range(51)})), 400, "BadRequest")
    eq(C.delete(b, query={"tagging": ""}).status, 204)
    refused(C.get(b, query={"tagging": ""}), 404, "NoSuchTagSet")


main()
