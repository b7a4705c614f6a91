# SPDX-License-Identifier: Apache-2.0
# daemon: own
"""What docs/s3-compatibility.md and docs/iceberg-compatibility.md say and no other test asks for, in the order of the pages."""
import base64
import hashlib
import re
import time

from tarnwire import Daemon, case, eq, main, refused, true


def daemon(**more):
    return Daemon(env={"TARN_USERS": "other-user:other-secret-word", **more})


def md5(body):
    return {"Content-MD5": base64.b64encode(hashlib.md5(body).digest()).decode()}


# ---------------------------------------------------------------------------------------------- S3: requests
@case
def s3_requests():
    with daemon() as d:
        c = d.client()
        b = c.new_bucket()
        for scheme in ("AWS minioadmin:c2lnbmF0dXJl", "AWS4-ECDSA-P256-SHA256 Credential=minioadmin/20260101/s3/aws4_request, SignedHeaders=host, Signature=00"):
            true(c.request("GET", f"/{b}", headers={"Authorization": scheme}, sign=False).status in (400, 403), f"refused: {scheme[:20]}")
        r = d.client(region="eu-north-1").get(b)
        refused(r, 400, "AuthorizationHeaderMalformed", "another region")
        eq(r.xml().findtext("Region"), "us-east-1", "the error names the right one")
        for expires, status in ((1, 200), (604800, 200), (604801, 400), (0, 400)):
            r = c.presigned("GET", c.presign("GET", f"/{b}", expires=expires))
            true(r.status == status or (status == 400 and r.status in (400, 403)), f"presigned for {expires} s: {r}")
        for key in ("a//b", "../x", "/x", "a/./b"):
            eq(c.put(b, key, key.encode()).status, 200, key)
            eq(c.get(b, key).body, key.encode(), key)
        eq(sorted(c.keys(b)), sorted(["a//b", "../x", "/x", "a/./b"]), "keys as they are")
        eq(c.head(b, "a//b", headers={"x-amz-checksum-mode": "ENABLED"}).headers.get("x-amz-checksum-crc64nvme") is not None, True, "CRC64NVME is computed")
        other = d.client(access="other-user", secret="other-secret-word")
        refused(other.get(b), 403, "AccessDenied", "a bucket of somebody else")
        own = other.new_bucket()
        eq(other.put(own, "k", b"v").status, 200, "one's own bucket")


@case
def s3_operations_that_are_not_there():
    with daemon() as d:
        c = d.client()
        b = c.new_bucket()
        eq(c.put(b, "k", b"v").status, 200)
        for name in ("analytics", "inventory", "metrics", "intelligent-tiering", "metadataTable"):
            refused(c.get(b, query={name: ""}), 501, "NotImplemented", name)
        for name in ("restore", "select", "torrent"):
            r = c.post(b, "k", query={name: "", **({"select-type": "2"} if name == "select" else {})}) if name != "torrent" else c.get(b, "k", query={name: ""})
            refused(r, 501, "NotImplemented", name)
        for name in ("session", "annotation"):
            refused(c.get(b, query={name: ""}), 501, "NotImplemented", name)
        refused(c.post(b, query={"versioning": ""}), 405, "MethodNotAllowed", "a method that the sub-resource does not have")


@case
def s3_limits():
    with daemon() as d:
        c = d.client()
        b = c.new_bucket()
        eq(c.put(b, "k" * 1024, b"v").status, 200, "the longest key")
        refused(c.put(b, "k" * 1025, b"v"), 400, "KeyTooLongError", "one byte more")
        eq(c.put(b, "meta", b"v", headers={"x-amz-meta-a": "v" * 2047}).status, 200, "2 KiB of user metadata")
        refused(c.put(b, "meta", b"v", headers={"x-amz-meta-a": "v" * 2048}), 400, "MetadataTooLarge", "one byte more")
        eq(c.put(b, "tags", b"v", headers={"x-amz-tagging": "&".join(f"k{i}=v" for i in range(10))}).status, 200, "10 tags")
        refused(c.put(b, "tags", b"v", headers={"x-amz-tagging": "&".join(f"k{i}=v" for i in range(11))}), 400, None, "11 tags")

        def delete(n):
            body = ("<Delete><Quiet>true</Quiet>" + "".join(f"<Object><Key>x{i}</Key></Object>" for i in range(n)) + "</Delete>").encode()
            return c.post(b, body=body, query={"delete": ""}, headers=md5(body))
        eq(delete(1000).status, 200, "1000 keys")
        refused(delete(1001), 400, "MalformedXML", "1001 keys")

        def lifecycle(n):
            rules = "".join(f"<Rule><ID>r{i}</ID><Status>Disabled</Status><Filter><Prefix>p{i}/</Prefix></Filter><Expiration><Days>1</Days></Expiration></Rule>" for i in range(n))
            body = f"<LifecycleConfiguration>{rules}</LifecycleConfiguration>".encode()
            return c.put(b, "", body, query={"lifecycle": ""}, headers=md5(body))
        eq(lifecycle(1000).status, 200, "1000 rules")
        true(lifecycle(1001).status == 400, "1001 rules")

        def policy(n):
            text = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::%s/*"}]}' % b
            return c.put(b, "", (text + " " * (n - len(text))).encode(), query={"policy": ""})
        true(policy(20 * 1024).status in (200, 204), "a policy of 20 KiB")
        true(policy(20 * 1024 + 1).status == 400, "one byte more")
        base = len(c.signed_headers("GET", f"/{b}")[0])
        true(c.get(b, headers={f"x-h{i}": "v" for i in range(200 - base)}).status == 200, "200 headers")
        true(c.get(b, headers={f"x-h{i}": "v" for i in range(201)}).status in (400, 431), "more")
        true(c.get(b, headers={"x-h": "v" * 32768}).status in (400, 431), "a head of more than 32 KiB")


# ---------------------------------------------------------------------------------------------- S3: what differs
@case
def s3_owners_and_acls():
    with daemon() as d:
        c = d.client()
        b = c.new_bucket()
        c.put(b, "k", b"v")
        for path in ((b, ""), (b, "k")):
            r = c.get(*path, query={"acl": ""})
            text = r.body.decode()
            true("FULL_CONTROL" in text and text.count("<Grant>") == 1, f"full control of the owner alone: {text}")
            owner = re.search(r"<Owner><ID>([0-9a-f]{64})</ID><DisplayName>tarn</DisplayName>", text)
            true(owner, f"owner: {text}")
        refused(c.put(b, "", query={"acl": ""}, headers={"x-amz-acl": "public-read"}), 400, "AccessControlListNotSupported", "a canned ACL")
        body = b"<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule></OwnershipControls>"
        refused(c.put(b, "", body, query={"ownershipControls": ""}, headers=md5(body)), 501, "NotImplemented", "other ownership")
        for name in ("minioadmin", owner.group(1)):
            eq(c.get(b, headers={"x-amz-expected-bucket-owner": name}).status, 200, f"expected owner {name}")
        refused(c.get(b, headers={"x-amz-expected-bucket-owner": "123456789012"}), 403, "AccessDenied", "another owner")
        refused(c.put(b, ""), 409, "BucketAlreadyOwnedByYou", "one's own bucket again")


@case
def s3_what_is_refused():
    with daemon() as d:
        c = d.client()
        b = c.new_bucket()
        sse, key = "x-amz-server-side-encryption", b"k" * 32
        own = {sse + "-customer-algorithm": "AES256", sse + "-customer-key": base64.b64encode(key).decode(), sse + "-customer-key-MD5": md5(key)["Content-MD5"]}
        for headers in ({sse: "AES256"}, {sse: "aws:kms"}, own):
            refused(c.put(b, "k", b"v", headers=headers), 501, "NotImplemented", str(headers))
        eq(c.head(b, "k").status, 404, "nothing was stored")
        refused(c.put(b, "k", b"v", headers={"x-amz-storage-class": "GLACIER"}), 400, "InvalidStorageClass", "GLACIER")
        eq(c.put(b, "k", b"v", headers={"x-amz-storage-class": "STANDARD_IA"}).status, 200, "a class that can be read at once")
        eq(c.head(b, "k").headers.get("x-amz-storage-class"), "STANDARD_IA", "is kept as a name")
        body = b"<LifecycleConfiguration><Rule><ID>t</ID><Status>Enabled</Status><Filter/><Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition></Rule></LifecycleConfiguration>"
        refused(c.put(b, "", body, query={"lifecycle": ""}, headers=md5(body)), 501, "NotImplemented", "a transition")
        refused(c.get(b, "k", query={"versionId": "no-version"}), 400, "InvalidArgument", "a version id of another form")
        refused(c.get(b, "k", query={"versionId": "0" * 31 + "1"}), 404, "NoSuchVersion", "one that is absent")
        body = b"<VersioningConfiguration><Status>Enabled</Status><MfaDelete>Enabled</MfaDelete></VersioningConfiguration>"
        refused(c.put(b, "", body, query={"versioning": ""}), 501, "NotImplemented", "MFA delete")
        eq(c.put(b, "moved", b"v", headers={"x-amz-website-redirect-location": "/there"}).status, 200, "where an object redirects to")
        eq(c.head(b, "moved").headers.get("x-amz-website-redirect-location"), "/there", "is kept")
        for name in ("x-amz-checksum-sha512", "x-amz-checksum-xxhash64", "x-amz-checksum-md5"):
            refused(c.put(b, "sum", b"v", headers={name: "AAAA"}), 400, "InvalidRequest", name)
        for name, absent in (("website", "NoSuchWebsiteConfiguration"), ("replication", "ReplicationConfigurationNotFoundError"), ("notification", None),
                             ("logging", None), ("accelerate", None), ("requestPayment", None)):
            r = c.get(b, query={name: ""})
            true(r.code == absent if absent else r.status == 200, f"{name} reads as never set: {r}")
            refused(c.put(b, "", b"<X/>", query={name: ""}, headers=md5(b"<X/>")), 501, "NotImplemented", name)


@case
def s3_uploads_go_with_their_bucket():
    with daemon() as d:
        c = d.client()
        b = c.new_bucket()
        r = c.post(b, "k", query={"uploads": ""})
        uid = r.xml().findtext("UploadId")
        eq(c.put(b, "k", b"part", query={"partNumber": 1, "uploadId": uid}).status, 200, "a part")
        eq(c.delete(b).status, 204, "the bucket goes")
        eq(c.put(b, "").status, 200, "and is made again")
        eq(c.get(b, query={"uploads": ""}).body.count(b"<Upload>"), 0, "without the upload")
        refused(c.put(b, "k", b"part", query={"partNumber": 1, "uploadId": uid}), 404, "NoSuchUpload", "which is gone")


@case
def s3_legal_hold_that_never_was():
    with daemon() as d:
        c = d.client()
        b = c.new_bucket(headers={"x-amz-bucket-object-lock-enabled": "true"})
        eq(c.put(b, "k", b"v").status, 200)
        eq(c.get(b, "k", query={"legal-hold": ""}).xml().findtext("Status"), "OFF", "reads as OFF")


@case
def s3_forms():
    with daemon() as d:
        c = d.client()
        b = c.new_bucket()
        for name, value in (("x-amz-server-side-encryption", "AES256"), ("x-amz-object-lock-mode", "GOVERNANCE")):
            r = c.post_form(b, {"key": "k", name: value}, b"v", conditions=[{name: value}])
            refused(r, 501, "NotImplemented", name)
        eq(c.head(b, "k").status, 404, "nothing was stored")


# ---------------------------------------------------------------------------------------------- the catalog
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}


@case
def catalog_connecting():
    with daemon() as d:
        c = d.client()
        w = c.new_warehouse()
        for service in ("s3tables", "s3", "execute-api", "glue"):
            eq(c.catalog("GET", "/v1/config", query={"warehouse": w}, service=service).status, 200, f"service {service}")
        eq(d.client(region="eu-west-9").catalog("GET", "/v1/config", query={"warehouse": w}).status, 200, "any region")
        true(c.catalog("GET", "/v1/config", query={"warehouse": w}, service="ec2").status in (400, 401, 403), "not any service")
        right = hashlib.sha256(b'{"namespace": ["sum"]}').hexdigest()
        eq(c.catalog("POST", f"/v1/{w}/namespaces", b'{"namespace": ["sum"]}', payload=right).status, 200, "the body's digest")
        true(c.catalog("POST", f"/v1/{w}/namespaces", b'{"namespace": ["bad"]}', payload=right).status in (400, 401, 403), "that of something else")
        for method, path, sign, status in (("GET", f"/v1/{w}/namespaces", False, 401), ("GET", "/v1/none/at/all", True, 404), ("PATCH", f"/v1/{w}/namespaces", True, 405)):
            r = c.catalog(method, path, sign=sign)
            eq(r.status, status, f"{method} {path}")
            e = r.json()["error"]
            true(e["code"] == status and e["type"] and e["message"], f"JSON of the specification's form: {r}")


@case
def catalog_prefix():
    with daemon() as d:
        c = d.client()
        w = c.new_warehouse()
        eq(c.catalog("POST", "/v1/namespaces", {"namespace": ["n"]}).status, 200, "without a prefix while there is one warehouse")
        eq(c.catalog("GET", f"/v1/{w}/namespaces/n").status, 200, "the same one")
        c.new_warehouse()
        true(c.catalog("GET", "/v1/namespaces").status in (400, 404), "not with two")


@case
def catalog_metadata():
    with daemon() as d:
        c = d.client()
        w = c.new_warehouse()
        root = f"/v1/{w}/namespaces"
        eq(c.catalog("POST", root, {"namespace": ["n"]}).status, 200)
        tables = f"{root}/n/tables"
        for version in (1, 2, 3):
            r = c.catalog("POST", tables, {"name": f"v{version}", "schema": SCHEMA, "properties": {"format-version": str(version)}})
            eq((r.status, r.json()["metadata"]["format-version"]), (200, version), f"format version {version}")
        eq(c.catalog("POST", tables, {"name": "v4", "schema": SCHEMA, "properties": {"format-version": "4"}}).status, 400, "format version 4")
        eq(c.catalog("POST", tables + "/v2", {"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 4}]}).status, 400, "an upgrade to it")
        eq(c.catalog("POST", tables + "/v2", {"requirements": [], "updates": [{"action": "no-such-update"}]}).status, 400, "an unknown update")
        eq(c.catalog("POST", tables + "/v2", {"requirements": [{"type": "no-such"}], "updates": []}).status, 400, "an unknown requirement")
        md = c.catalog("GET", tables + "/v2").json()["metadata"]
        eq(md["location"], f"s3://{w}/{md['table-uuid']}", "where tables lie")
        r = c.catalog("POST", tables, {"name": "local", "schema": SCHEMA, "location": "file:/tmp/x"})
        eq(r.status, 200, "a location outside S3")
        true(r.json()["metadata"]["location"].startswith(f"s3://{w}/"), "is replaced")
        eq(c.catalog("POST", tables, {"name": "away", "schema": SCHEMA, "location": "s3://another-bucket/x"}).status, 400, "a location in another bucket")


@case
def catalog_purges_what_is_below_the_table_alone():
    with daemon() as d:
        c = d.client()
        w = c.new_warehouse()
        root = f"/v1/{w}/namespaces"
        eq(c.catalog("POST", root, {"namespace": ["n"]}).status, 200)
        r = c.catalog("POST", f"{root}/n/tables", {"name": "t", "schema": SCHEMA, "properties": {"write.data.path": f"s3://{w}/elsewhere"}})
        eq(r.status, 200, str(r))
        c.put(w, "elsewhere/f", b"x")
        at = r.json()["metadata"]["location"].split("/", 3)[3] + "/"
        eq(c.catalog("DELETE", f"{root}/n/tables/t").status, 204, "not asked for")
        true(c.keys(w, prefix=at), "nothing is purged")
        eq(c.catalog("POST", f"{root}/n/register", {"name": "t", "metadata-location": r.json()["metadata-location"]}).status, 200, "register")
        eq(c.catalog("DELETE", f"{root}/n/tables/t", query={"purgeRequested": "true"}).status, 204, "asked for")
        eq(d.stop(), 0, "the purge goes on")
        d.start()
        c = d.client()
        for _ in range(200):
            if not c.keys(w, prefix=at):
                break
            time.sleep(0.05)
        eq((c.keys(w, prefix=at), c.keys(w, prefix="elsewhere/")), ([], ["elsewhere/f"]), "what is below the location, and nothing else")


@case
def catalog_does_not_advertise_what_it_lacks():
    with daemon() as d:
        c = d.client()
        w = c.new_warehouse()
        doc = c.catalog("GET", "/v1/config", query={"warehouse": w}).json()
        for word in ("plan", "sign", "credentials", "functions", "unregister"):
            true(not [e for e in doc["endpoints"] if re.search(rf"/{word}\b", e)], f"{word} is not among the endpoints")
        true("idempotency-key-lifetime" not in doc, "nor are idempotency keys")
        text = str(doc["defaults"]) + str(doc["overrides"])
        true("client.region" in text and "s3.endpoint" in text, f"region and endpoint are given: {text}")


main()
