# SPDX-License-Identifier: Apache-2.0
# drives: 1
# env: TARN_DOMAIN=s3.test,other.test
"""Virtual-host style: the bucket in the Host header, for each domain, with and without port; path style beside it."""

import base64
import hashlib
import hmac
import time
import urllib.parse

from tarnwire import Client, case, client, eq, main, refused

C = client()


def at(host):
    c = Client()
    c.netloc = host
    return c


@case
def bucket_in_the_host():
    b = C.new_bucket()
    for host in (f"{b}.s3.test", f"{b}.S3.Test:{C.port}", f"{b}.other.test"):
        c = at(host)
        eq(c.request("PUT", "/a/b \u00e4", body=host.encode()).status, 200, host)
        eq(c.request("GET", "/a/b \u00e4").body, host.encode())
        eq(C.get(b, "a/b \u00e4").body, host.encode(), "the same object in path style")
        eq(c.request("GET", "/", {"list-type": "2"}).texts("Contents/Key"), ["a/b \u00e4"])
        eq(c.request("HEAD", "/").status, 200)
        eq(c.request("GET", "/", {"location": ""}).status, 200)
        target = c.presign("GET", "/a/b \u00e4")
        eq(c.exchange("GET", target, [("Host", host)]).body, host.encode(), "presigned")
    eq(at(f"{b}.s3.test").request("GET", f"/{b}/a").status, 404, "the path is the key")


@case
def other_hosts():
    b = C.new_bucket("dot.ted")
    C.put(b, "k", b"x")
    eq(at(f"{b}.s3.test").request("GET", "/k").body, b"x", "dots in the bucket")
    eq(at("s3.test").get(b, "k").body, b"x", "the domain itself is path style")
    eq(at("nots3.test").get(b, "k").body, b"x", "a host that only ends like the domain")
    refused(at("no-such-bucket-here.s3.test").request("GET", "/k"), 404, "NoSuchBucket")
    eq(at(f"new-{b}.s3.test").request("PUT", "/").status, 200, "creating it this way")
    eq(at(f"new-{b}.s3.test").request("DELETE", "/").status, 204)
    eq(at(f"{b}.s3.test").request("GET", "/_iceberg/v1/config").status, 404, "under a bucket's host there is no catalog")


def url_v2(bucket, key, in_path):
    expires = int(time.time()) + 60
    text = f"GET\n\n\n{expires}\n/{bucket}/{key}"
    sig = base64.b64encode(hmac.new(C.secret.encode(), text.encode(), hashlib.sha1).digest()).decode()
    return f"{'/' + bucket if in_path else ''}/{key}?AWSAccessKeyId={C.access}&Expires={expires}&Signature={urllib.parse.quote(sig, safe='')}"


@case
def presigned_v2_covers_the_bucket_of_the_host():
    b, other = C.new_bucket(), C.new_bucket()
    C.put(b, "k", b"mine")
    C.put(other, f"{b}/k", b"another's")

    def get(host, target):
        return C.exchange("GET", target, [("Host", host)])
    eq(get(f"{b}.s3.test", url_v2(b, "k", False)).body, b"mine")
    eq(get(f"{b}.s3.test:{C.port}", url_v2(b, "k", False)).body, b"mine")
    eq(get(C.netloc, url_v2(b, "k", True)).body, b"mine")
    refused(get(f"{other}.s3.test", url_v2(b, "k", True)), 403, "SignatureDoesNotMatch", "sent to another bucket")


main()
