# SPDX-License-Identifier: Apache-2.0
# drives: 1
# env: TARN_USERS=second:second-secret,third:third-secret
"""Who may do what: bucket policies, other users, anonymous requests, public access block, presigned URLs of both versions, forms, CORS."""
import base64
import datetime
import email.utils
import hashlib
import hmac
import json
import time
import urllib.parse

from tarnwire import Client, case, client, eq, main, refused, true

C = client()
U = Client(access="second", secret="second-secret")


def policy(bucket, *statements):
    doc = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", **s} for s in statements]}
    return C.request("PUT", f"/{bucket}", {"policy": ""}, body=json.dumps(doc).encode())


def arn(bucket, key="*"):
    return f"arn:aws:s3:::{bucket}/{key}"


@case
def anonymous_requests_need_a_policy():
    b = C.new_bucket()
    C.put(b, "pub/k", b"public")
    C.put(b, "k", b"private")
    for method, path in (("GET", f"/{b}/k"), ("HEAD", f"/{b}/k"), ("PUT", f"/{b}/new"), ("DELETE", f"/{b}/k"), ("GET", f"/{b}"), ("DELETE", f"/{b}"),
                         ("PUT", "/anonymous-bucket-x"), ("GET", "/"), ("POST", f"/{b}/k?uploads")):
        p, _, q = path.partition("?")
        eq(C.request(method, p, [q] if q else None, sign=False).status, 403, f"{method} {path}")
    eq(policy(b, {"Action": "s3:GetObject", "Resource": arn(b, "pub/*")}).status, 204)
    eq(C.get(b, "pub/k", sign=False).body, b"public")
    refused(C.get(b, "k", sign=False), 403, "AccessDenied")
    refused(C.get(b, "pub/absent", sign=False), 403, "AccessDenied", "who may not list learns nothing of absent keys")
    refused(C.get(b, "pub/k", {"response-content-type": "text/x"}, sign=False), 400, "InvalidRequest", "overrides only when signed")
    eq(C.get(b, "pub/k", {"response-content-type": "text/x", "response-cache-control": "no-cache"}).headers["Content-Type"], "text/x")
    eq(C.get(b, query={"policyStatus": ""}).xml().findtext("IsPublic"), "TRUE")
    eq(policy(b, {"Action": ["s3:GetObject", "s3:ListBucket"], "Resource": [arn(b), f"arn:aws:s3:::{b}"]}).status, 204)
    refused(C.get(b, "pub/absent", sign=False), 404, "NoSuchKey", "who may list does")
    eq(C.get(b, sign=False).status, 200)
    refused(C.put(b, "new", b"x", sign=False), 403, "AccessDenied")
    eq(json.loads(C.get(b, query={"policy": ""}).body)["Version"], "2012-10-17")
    eq(C.delete(b, query={"policy": ""}).status, 204)
    refused(C.get(b, query={"policy": ""}), 404, "NoSuchBucketPolicy")
    refused(C.get(b, "pub/k", sign=False), 403, "AccessDenied")


@case
def policies_that_are_refused():
    b = C.new_bucket()
    for bad in (b"", b"x", b"[]", b"{}", b'{"Version":"2012-10-17","Statement":[]}',
                json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": arn("another")}]}).encode(),
                json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Maybe", "Principal": "*", "Action": "s3:GetObject", "Resource": arn(b)}]}).encode(),
                json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": arn(b)}]}).encode(),
                b'{"Version":"2012-10-17","Statement":' + b"[" * 100000, b" " * 20481):
        refused(C.request("PUT", f"/{b}", {"policy": ""}, body=bad), 400, "MalformedPolicy", f"{bad[:80]}")


@case
def denies_hold_for_the_root_too():
    b = C.new_bucket()
    C.put(b, "k", b"x")
    eq(policy(b, {"Effect": "Deny", "Action": "s3:*", "Resource": [arn(b), f"arn:aws:s3:::{b}"]}).status, 204)
    refused(C.get(b, "k"), 403, "AccessDenied")
    refused(C.put(b, "k", b"y"), 403, "AccessDenied")
    eq(C.get(b, query={"policy": ""}).status, 200, "but the policy itself stays within reach")
    eq(C.delete(b, query={"policy": ""}).status, 204)
    eq(C.get(b, "k").body, b"x")


@case
def other_users():
    b = C.new_bucket()
    C.put(b, "k", b"root's")
    for r in (U.get(b, "k"), U.get(b), U.put(b, "n", b"x"), U.delete(b, "k"), U.request("PUT", f"/{b}", {"policy": ""}, body=b"{}"), U.delete(b)):
        refused(r, 403, "AccessDenied")
    mine = U.new_bucket()
    eq(U.put(mine, "k", b"mine").status, 200, "what a user makes is his")
    true(mine in U.request("GET", "/").texts("Buckets/Bucket/Name") and b not in U.request("GET", "/").texts("Buckets/Bucket/Name"), "his buckets are listed, no others")
    true({b, mine} <= set(C.request("GET", "/").texts("Buckets/Bucket/Name")), "the root sees all")
    refused(U.request("PUT", f"/{b}"), 409, "BucketAlreadyExists")
    refused(Client(access="third", secret="third-secret").get(mine, "k"), 403, "AccessDenied")
    eq(policy(b, {"Principal": {"AWS": "second"}, "Action": "s3:GetObject", "Resource": arn(b)}).status, 204)
    eq(U.get(b, "k").body, b"root's", "by policy")
    refused(Client(access="third", secret="third-secret").get(b, "k"), 403, "AccessDenied", "which names only one")
    refused(U.put(mine, "stolen", headers={"x-amz-copy-source": f"{b}/k"}) if policy(b, {"Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{b}"}).status != 204
            else U.put(mine, "stolen", headers={"x-amz-copy-source": f"{b}/k"}), 403, "AccessDenied", "a copy asks for the source")
    uid = U.post(mine, "m", query={"uploads": ""}).xml().findtext("UploadId")
    refused(U.put(mine, "m", headers={"x-amz-copy-source": f"{b}/k"}, query={"partNumber": "1", "uploadId": uid}), 403, "AccessDenied", "a part by copy, too")
    refused(C.get(b, headers={"x-amz-expected-bucket-owner": "second"}), 403, "AccessDenied", "another owner is expected")
    eq(U.get(mine, headers={"x-amz-expected-bucket-owner": "second"}).status, 200)


@case
def conditions():
    b = C.new_bucket()
    C.put(b, "a/k", b"1")
    C.put(b, "tagged", b"2", {"x-amz-tagging": "level=open"})
    C.put(b, "closed", b"3", {"x-amz-tagging": "level=closed"})
    eq(policy(b, {"Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{b}", "Condition": {"StringLike": {"s3:prefix": "a/*"}}},
              {"Action": "s3:GetObject", "Resource": arn(b), "Condition": {"StringEquals": {"s3:ExistingObjectTag/level": "open"}}},
              {"Action": ["s3:PutObject", "s3:PutObjectTagging"], "Resource": arn(b, "in/*"), "Condition": {"StringEquals": {"s3:RequestObjectTag/level": "open"}}},
              {"Action": "s3:GetObject", "Resource": arn(b, "a/*"), "Condition": {"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}, "Bool": {"aws:SecureTransport": "false"}}},
              {"Action": "s3:PutObject", "Resource": arn(b, "acl/*"), "Condition": {"StringEquals": {"s3:x-amz-acl": "private"}}}).status, 204)
    eq(U.get(b, query={"prefix": "a/x"}).status, 200)
    refused(U.get(b, query={"prefix": "b"}), 403, "AccessDenied")
    refused(U.get(b), 403, "AccessDenied")
    eq(U.get(b, "tagged").body, b"2", "by the tag it has")
    refused(U.get(b, "closed"), 403, "AccessDenied")
    eq(U.get(b, "a/k").body, b"1", "by address")
    eq(U.get(b, "a/k", headers={"X-Forwarded-For": "9.9.9.9"}).body, b"1", "which no header changes")
    refused(U.put(b, "in/k", b"x"), 403, "AccessDenied")
    refused(U.put(b, "in/k", b"x", {"x-amz-tagging": "level=closed"}), 403, "AccessDenied")
    eq(U.put(b, "in/k", b"x", {"x-amz-tagging": "level=open"}).status, 200, "by the tags it brings")
    body = b"<Tagging><TagSet><Tag><Key>level</Key><Value>%s</Value></Tag></TagSet></Tagging>"
    eq(U.put(b, "in/k", body % b"open", query={"tagging": ""}).status, 200, "also in a body")
    refused(U.put(b, "in/k", body % b"closed", query={"tagging": ""}), 403, "AccessDenied")
    refused(U.put(b, "acl/k", b"x"), 403, "AccessDenied")
    eq(U.put(b, "acl/k", b"x", {"x-amz-acl": "private"}).status, 200)


@case
def versions_have_actions_of_their_own():
    b = C.new_bucket()
    eq(C.request("PUT", f"/{b}", {"versioning": ""}, body=b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>").status, 200)
    v = C.put(b, "k", b"1").headers["x-amz-version-id"]
    eq(policy(b, {"Action": "s3:GetObject", "Resource": arn(b)}).status, 204)
    eq(U.get(b, "k").status, 200)
    refused(U.get(b, "k", {"versionId": v}), 403, "AccessDenied")
    eq(policy(b, {"Action": ["s3:GetObjectVersion", "s3:DeleteObject"], "Resource": arn(b)}).status, 204)
    refused(U.get(b, "k"), 403, "AccessDenied")
    eq(U.get(b, "k", {"versionId": v}).status, 200)
    refused(U.delete(b, "k", {"versionId": v}), 403, "AccessDenied")
    eq(U.delete(b, "k").status, 204)


@case
def public_access_block():
    b = C.new_bucket()
    C.put(b, "k", b"x")
    refused(C.get(b, query={"publicAccessBlock": ""}), 404, "NoSuchPublicAccessBlockConfiguration")
    public = {"Action": "s3:GetObject", "Resource": arn(b)}
    eq(policy(b, public, {"Principal": {"AWS": "second"}, **public}).status, 204)
    eq(C.get(b, "k", sign=False).status, 200)

    def block(**flags):
        body = "".join(f"<{k}>{v}</{k}>" for k, v in flags.items())
        return C.request("PUT", f"/{b}", {"publicAccessBlock": ""}, body=f"<PublicAccessBlockConfiguration>{body}</PublicAccessBlockConfiguration>".encode())
    eq(block(RestrictPublicBuckets="true").status, 200)
    refused(C.get(b, "k", sign=False), 403, "AccessDenied", "RestrictPublicBuckets")
    refused(U.get(b, "k"), 403, "AccessDenied", "other users as well")
    eq(C.get(b, "k").status, 200, "not the owner")
    eq(block(BlockPublicPolicy="true").status, 200)
    eq(C.get(b, "k", sign=False).status, 200, "BlockPublicPolicy leaves what is there …")
    refused(policy(b, public), 403, "AccessDenied", "… and takes no new public policy")
    eq(policy(b, {"Principal": {"AWS": "second"}, **public}).status, 204, "one that isn't public is fine")
    eq(C.delete(b, query={"publicAccessBlock": ""}).status, 204)
    eq(policy(b, public).status, 204)
    refused(C.request("PUT", f"/{b}", {"publicAccessBlock": ""}, body=b"<PublicAccessBlockConfiguration><X>true</X></PublicAccessBlockConfiguration>"), 400, "MalformedXML")


@case
def presigned_v4():
    b = C.new_bucket()
    t = C.presign("PUT", f"/{b}/k \u00e4")
    eq(C.presigned("PUT", t, [("Content-Length", "3")], b"put").status, 200)
    t = C.presign("GET", f"/{b}/k \u00e4", {"response-content-disposition": "attachment"})
    r = C.presigned("GET", t)
    eq((r.body, r.headers["Content-Disposition"]), (b"put", "attachment"))
    refused(C.presigned("PUT", t, [("Content-Length", "0")]), 403, "SignatureDoesNotMatch", "another method")
    refused(C.presigned("GET", t.replace("attachment", "inline")), 403, "SignatureDoesNotMatch", "another parameter")
    t = C.presign("PUT", f"/{b}/k2")
    for name, value in (("x-amz-copy-source", f"/{b}/k \u00e4".encode().decode("latin-1")), ("x-amz-acl", "private"), ("x-amz-tagging", "a=1"), ("x-amz-meta-a", "1"),
                        ("x-amz-storage-class", "STANDARD_IA")):
        refused(C.presigned("PUT", t, [("Content-Length", "1"), (name, urllib.parse.quote(value))], b"x"), 403, "AccessDenied", f"unsigned {name}")
    refused(C.get(b, "k2"), 404, "NoSuchKey")
    t = C.presign("PUT", f"/{b}/k2", headers={"x-amz-meta-a": "1"})
    eq(C.presigned("PUT", t, [("Content-Length", "1"), ("x-amz-meta-a", "1")], b"x").status, 200, "a signed one")
    now = datetime.datetime.now(datetime.timezone.utc)
    refused(C.presigned("GET", C.presign("GET", f"/{b}/k2", expires=10, at=now - datetime.timedelta(seconds=60))), 403, "AccessDenied", "expired")
    refused(C.presigned("GET", C.presign("GET", f"/{b}/k2", at=now + datetime.timedelta(minutes=20))), 403, "AccessDenied", "not valid yet")
    eq(C.presigned("GET", C.presign("GET", f"/{b}/k2", expires=604800)).status, 200, "a week")
    refused(C.presigned("GET", C.presign("GET", f"/{b}/k2", expires=604801)), 400, "AuthorizationQueryParametersError")
    refused(U.presigned("GET", U.presign("GET", f"/{b}/k2")), 403, "AccessDenied", "who signs may not")


@case
def presigned_v2():
    b = C.new_bucket()
    C.put(b, "k", b"two")

    def v2(method, key, expires, extra=""):
        text = f"{method}\n\n\n{expires}\n/{b}/{key}{extra and '?' + extra}"
        sig = base64.b64encode(hmac.new(C.secret.encode(), text.encode(), hashlib.sha1).digest()).decode()
        q = f"AWSAccessKeyId={C.access}&Expires={expires}&Signature={urllib.parse.quote(sig, safe='')}"
        return f"/{b}/{key}?" + (extra and extra + "&") + q
    soon = int(time.time()) + 60
    eq(C.presigned("GET", v2("GET", "k", soon)).body, b"two")
    refused(C.presigned("GET", v2("GET", "k", soon).replace("/k?", "/other?")), 403, "SignatureDoesNotMatch")
    refused(C.presigned("GET", v2("GET", "k", int(time.time()) - 1)), 403, "AccessDenied")
    eq(C.presigned("GET", v2("GET", "k", soon, "tagging")).status, 200, "a sub-resource is signed")
    refused(C.presigned("GET", v2("GET", "k", soon) + "&acl"), 403, "SignatureDoesNotMatch")
    refused(C.exchange("GET", f"/{b}/k", [("Host", C.netloc), ("Date", email.utils.formatdate(usegmt=True)), ("Authorization", f"AWS {C.access}:abc=")]), 400, "InvalidRequest",
            "headers of version 2")


@case
def forms():
    b = C.new_bucket()
    r = C.post_form(b, {"key": "up/${filename}", "Content-Type": "text/f", "x-amz-meta-m": "1", "success_action_status": "201"}, b"form data" * 30000,
                    [["starts-with", "$key", "up/"], {"Content-Type": "text/f"}, {"x-amz-meta-m": "1"}, {"success_action_status": "201"},
                     ["content-length-range", 1, 1000000]], filename="C:dir/na;me.txt")
    eq((r.status, r.xml().tag, r.xml().findtext("Key")), (201, "PostResponse", "up/na;me.txt"), f"{r}")
    r = C.get(b, "up/na;me.txt")
    eq((r.body == b"form data" * 30000, r.headers["Content-Type"], r.headers["x-amz-meta-m"]), (True, "text/f", "1"))
    eq(C.post_form(b, {"key": "k"}, b"x", [{"key": "k"}]).status, 204, "204 where no status is asked for")
    r = C.post_form(b, {"key": "k", "success_action_redirect": "http://h/p?a=1"}, b"x", [{"key": "k"}, ["starts-with", "$success_action_redirect", ""]])
    true(r.status == 303 and r.headers["Location"].startswith(f"http://h/p?a=1&bucket={b}&key=k&etag=%22"), f"{r.status} {r.headers['Location']}")
    edge = (b"\r\n--", b"\r\n--tarnwire", b"\r" * 5000, b"\r\n-" * 50000, b"")
    for i, data in enumerate(edge):
        eq(C.post_form(b, {"key": f"edge{i}"}, data, [{"key": f"edge{i}"}]).status, 204)
        eq(C.get(b, f"edge{i}").body == data, True, f"bytes that look like a boundary, {i}")
    for what, fields, conds, code in (("a key that isn't allowed", {"key": "other"}, [{"key": "k"}], "AccessDenied"),
                                      ("a field without a condition", {"key": "k", "x-amz-meta-z": "1"}, [{"key": "k"}], "AccessDenied")):
        refused(C.post_form(b, fields, b"x", conds), 403, code, what)
    kept = {}
    eq(C.post_form(b, {"key": "k"}, b"x", [{"key": "k"}], alter=lambda f: kept.update(f) or f).status, 204)
    other = C.new_bucket()
    for more in ({}, {"bucket": b}, {"bucket": other}):
        refused(C.post_form(other, {}, b"x", alter=lambda f, m=more: {**kept, **m}), 403, "AccessDenied", f"a policy made for another bucket, {more}")
    refused(C.post_form(b, {"key": "k"}, b"x" * 11, [{"key": "k"}, ["content-length-range", 0, 10]]), 400, "EntityTooLarge")
    refused(C.post_form(b, {"key": "k"}, b"x", [{"key": "k"}, ["content-length-range", 2, 10]]), 400, "EntityTooSmall")
    refused(C.post_form(b, {"key": "k"}, b"x", [{"key": "k"}], expires_s=-5), 403, "AccessDenied", "expired")
    refused(C.post_form(b, {"key": "k"}, b"x", [{"key": "k"}], alter=lambda f: {**f, "x-amz-signature": "0" * 64}), 403, "SignatureDoesNotMatch")
    refused(C.post_form(b, {"key": "k"}, b"x", [{"key": "k"}], alter=lambda f: {k: v for k, v in f.items() if k != "x-amz-signature"}), 400, "InvalidArgument")
    refused(C.post_form(b, {"key": "anon"}, b"x", alter=lambda f: {"key": "anon"}), 403, "AccessDenied", "nobody signed")
    eq(policy(b, {"Action": "s3:PutObject", "Resource": arn(b, "anon")}).status, 204)
    eq(C.post_form(b, {"key": "anon"}, b"x", alter=lambda f: {"key": "anon"}).status, 204, "a policy lets anybody")
    eq(C.post_form(b, {"key": "t", "tagging": "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>"}, b"x", [{"key": "t"}, ["starts-with", "$tagging", ""]]).status, 204)
    eq(C.head(b, "t").headers["x-amz-tagging-count"], "1")
    refused(C.request("POST", f"/{b}", headers={"Content-Type": "text/plain"}, body=b"x"), 412, "PreconditionFailed")
    policy64 = base64.b64encode(json.dumps({"expiration": "2099-01-01T00:00:00Z", "conditions": [{"bucket": b}, {"key": "v2"}]}).encode()).decode()
    sig = base64.b64encode(hmac.new(C.secret.encode(), policy64.encode(), hashlib.sha1).digest()).decode()
    eq(C.post_form(b, {}, b"x", alter=lambda f: {"key": "v2", "AWSAccessKeyId": C.access, "policy": policy64, "signature": sig}).status, 204, "the older form")


@case
def cors():
    b = C.new_bucket()
    refused(C.get(b, query={"cors": ""}), 404, "NoSuchCORSConfiguration")
    pre = {"Origin": "https://a.x.org", "Access-Control-Request-Method": "PUT"}
    refused(C.request("OPTIONS", f"/{b}/k", headers=pre, sign=False), 403, "AccessForbidden")
    rules = (b"<CORSConfiguration><CORSRule><AllowedOrigin>https://*.x.org</AllowedOrigin><AllowedMethod>PUT</AllowedMethod><AllowedMethod>GET</AllowedMethod>"
             b"<AllowedHeader>x-amz-*</AllowedHeader><ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>60</MaxAgeSeconds></CORSRule>"
             b"<CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>HEAD</AllowedMethod></CORSRule></CORSConfiguration>")
    eq(C.request("PUT", f"/{b}", {"cors": ""}, body=rules).status, 200)
    r = C.request("OPTIONS", f"/{b}/k", headers={**pre, "Access-Control-Request-Headers": "X-Amz-Date, x-amz-meta-a"}, sign=False)
    eq((r.status, r.headers["Access-Control-Allow-Origin"], r.headers["Access-Control-Allow-Methods"], r.headers["Access-Control-Max-Age"],
        r.headers["Access-Control-Expose-Headers"], r.headers["Access-Control-Allow-Credentials"]), (200, "https://a.x.org", "PUT, GET", "60", "ETag", "true"))
    for bad in ({**pre, "Origin": "https://x.org"}, {**pre, "Access-Control-Request-Method": "DELETE"}, {**pre, "Access-Control-Request-Headers": "authorization"}):
        refused(C.request("OPTIONS", f"/{b}/k", headers=bad, sign=False), 403, "AccessForbidden", f"{bad}")
    refused(C.request("OPTIONS", f"/{b}/k", headers={"Origin": "https://a.x.org", "Access-Control-Request-Method": "get"}, sign=False), 400, "BadRequest")
    refused(C.request("OPTIONS", f"/{b}/k", headers={"Access-Control-Request-Method": "GET"}, sign=False), 400, "BadRequest")
    C.put(b, "k", b"x")
    eq(C.get(b, "k", headers={"Origin": "https://a.x.org"}).headers["Access-Control-Allow-Origin"], "https://a.x.org", "in answers")
    eq(C.get(b, "k", headers={"Origin": "https://elsewhere"}).headers["Access-Control-Allow-Origin"], None)
    r = C.head(b, "k", headers={"Origin": "https://elsewhere"})
    eq((r.headers["Access-Control-Allow-Origin"], r.headers["Access-Control-Allow-Credentials"]), ("*", None), "any origin, and then no credentials")
    for bad in (b"<CORSConfiguration/>", b"<CORSConfiguration><CORSRule/></CORSConfiguration>",
                b"<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>PATCH</AllowedMethod></CORSRule></CORSConfiguration>"):
        eq(C.request("PUT", f"/{b}", {"cors": ""}, body=bad).status, 400, f"{bad}")
    eq(C.delete(b, query={"cors": ""}).status, 204)


@case
def acl_answers():
    b = C.new_bucket()
    C.put(b, "k", b"x")
    for key in ("", "k"):
        root = C.get(b, key, {"acl": ""}).xml()
        eq((root.findtext("Owner/ID") is not None, [g.findtext("Permission") for g in root.findall("AccessControlList/Grant")]), (True, ["FULL_CONTROL"]))
        eq(C.request("PUT", f"/{b}/{key}" if key else f"/{b}", {"acl": ""}, {"x-amz-acl": "private"}).status, 200)
        refused(C.request("PUT", f"/{b}/{key}" if key else f"/{b}", {"acl": ""}, {"x-amz-acl": "public-read"}), 400, "AccessControlListNotSupported")
        refused(C.request("PUT", f"/{b}/{key}" if key else f"/{b}", {"acl": ""}, {"x-amz-acl": "nonsense"}), 400, "InvalidArgument")
    refused(C.request("PUT", "/wire-acl-bucket", headers={"x-amz-acl": "public-read"}), 400, "InvalidBucketAclWithObjectOwnership")
    eq(C.get(b, query={"ownershipControls": ""}).texts("Rule/ObjectOwnership"), ["BucketOwnerEnforced"])


main()
