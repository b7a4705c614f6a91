# SPDX-License-Identifier: Apache-2.0
# drives: 1
"""Listings: byte order, prefixes, delimiters, markers, tokens, encodings, page sizes; buckets page by page; many deletes at once."""
from tarnwire import Client, case, client, eq, main, refused, rng, true, unique

C = client()
R = rng()
NAMES = ["", "a", "a/", "a/b", "a/b/c", "a/b/d", "a//x", "a0", "b", "b/", "c&d<e>\"f'", "c d+e%20f", "d\u00e4/\u20ac", "e\tf", "z/1", "z/2/3", "~", "\u00ff", "\U0001f600"]
KEYS = sorted([n for n in NAMES if n], key=lambda n: n.encode())
B = C.new_bucket()


def expected(prefix="", delimiter="", after=""):
    """Keys and common prefixes as one list in byte order, those > after."""
    out = []
    for k in KEYS:
        if not k.startswith(prefix):
            continue
        i = k.find(delimiter, len(prefix)) if delimiter else -1
        name = k[:i + len(delimiter)] if i >= 0 else k
        if name.encode() > after.encode() and (not out or out[-1] != name):
            out.append(name)
    return out


def pages_v2(**q):
    out, token = [], None
    for _ in range(200):
        query = {"list-type": "2", **{k.replace("_", "-"): v for k, v in q.items()}}
        if token:
            query["continuation-token"] = token
        root = C.get(B, query=query).xml()
        got = [e.findtext("Key") or e.findtext("Prefix") for e in root if e.tag in ("Contents", "CommonPrefixes")]
        eq(root.findtext("KeyCount"), str(len(got)), "KeyCount counts keys and prefixes")
        out += got
        token = root.findtext("NextContinuationToken")
        if root.findtext("IsTruncated") == "false":
            eq(token, None, "the last page has no token")
            return out
        true(token and all(c.isalnum() or c in "-_" for c in token), f"a token that needs no escaping: {token}")
    raise AssertionError("no end")


def pages_v1(**q):
    out, marker = [], None
    for _ in range(200):
        query = dict(q)
        if marker is not None:
            query["marker"] = marker
        root = C.get(B, query={k.replace("_", "-"): v for k, v in query.items()}).xml()
        got = [e.findtext("Key") or e.findtext("Prefix") for e in root if e.tag in ("Contents", "CommonPrefixes")]
        out += got
        if root.findtext("IsTruncated") == "false":
            return out
        marker = root.findtext("NextMarker") or got[-1]
    raise AssertionError("no end")


@case
def all_keys():
    for k in R.sample(KEYS, len(KEYS)):
        eq(C.put(B, k, k.encode()).status, 200, k)
    eq(C.keys(B), KEYS, "byte order")
    r = C.get(B, query={"list-type": "2", "encoding-type": "url"})
    from urllib.parse import unquote
    eq([unquote(t) for t in r.texts("Contents/Key")], KEYS, "percent-encoded")
    eq(r.xml().findtext("EncodingType"), "url")
    for k in KEYS:
        eq(C.get(B, k).body, k.encode(), f"GET {k}")


@case
def prefixes_delimiters_pages():
    for prefix in ("", "a", "a/", "a/b", "a//", "b", "d\u00e4/", "none", "z/"):
        for delimiter in ("", "/", "b", "//", "%20", "\u00e4"):
            want = expected(prefix, delimiter)
            for size in (1, 2, 3, 1000):
                q = {k: v for k, v in (("prefix", prefix), ("delimiter", delimiter), ("max_keys", str(size))) if v}
                got = sorted(pages_v2(**q), key=lambda n: n.encode())
                eq(got, want, f"v2 prefix {prefix!r} delimiter {delimiter!r} pages of {size}")
                eq(sorted(pages_v1(**q), key=lambda n: n.encode()), want, f"v1 prefix {prefix!r} delimiter {delimiter!r} pages of {size}")


@case
def markers():
    for after in ("a", "a/b", "a/zzz", "b", "zzzz", "\U0001f601", "a/"):
        eq(pages_v2(start_after=after), expected(after=after), f"start-after {after!r}")
        eq(pages_v1(marker=after), expected(after=after), f"marker {after!r}")
    eq(pages_v2(start_after="a/", delimiter="/"), expected(delimiter="/", after="a/"), "a common prefix itself is not > start-after")
    r = C.get(B, query={"list-type": "2", "start-after": "a", "prefix": "a", "delimiter": "/", "max-keys": "2"})
    eq([r.xml().findtext(n) for n in ("StartAfter", "Prefix", "Delimiter", "MaxKeys", "Name")], ["a", "a", "/", "2", B], "what was asked for comes back")
    eq(C.get(B, query={"list-type": "2", "continuation-token": ""}).status, 200, "an empty token")
    refused(C.get(B, query={"list-type": "2", "continuation-token": "%%%"}), 400, "InvalidArgument")
    refused(C.get(B, query={"list-type": "3"}), 400, "InvalidArgument")


@case
def page_sizes():
    root = C.get(B, query={"list-type": "2", "max-keys": "0"}).xml()
    eq((root.findtext("IsTruncated"), root.findtext("KeyCount"), root.find("Contents")), ("false", "0", None))
    eq(C.get(B, query={"list-type": "2", "max-keys": "5000"}).xml().findtext("MaxKeys"), "1000", "clamped")
    for bad in ("-1", "x", "2147483648", "1.5"):
        refused(C.get(B, query={"list-type": "2", "max-keys": bad}), 400, "InvalidArgument", bad)
        refused(C.get(B, query={"max-keys": bad}), 400, "InvalidArgument", bad)
    refused(C.get(B, query={"encoding-type": "base64"}), 400, "InvalidArgument")
    eq(C.get(B, query={"list-type": "2"}).xml().find("Contents/Owner"), None, "no owner in v2 …")
    true(C.get(B, query={"list-type": "2", "fetch-owner": "true"}).xml().findtext("Contents/Owner/ID"), "… but where it is asked for")
    true(C.get(B).xml().findtext("Contents/Owner/ID"), "always in v1")


@case
def more_than_a_page():
    b = C.new_bucket()
    want = [f"k{i:05}" for i in range(1203)]
    for k in want:
        C.put(b, k)
    eq(C.keys(b), want)
    eq(C.get(b, query={"list-type": "2"}).xml().findtext("KeyCount"), "1000")
    body = "<Delete>" + "".join(f"<Object><Key>{k}</Key></Object>" for k in want[:1001]) + "</Delete>"
    refused(C.post(b, body=body.encode(), query={"delete": ""}), 400, "MalformedXML", "1,001 keys")
    body = "<Delete><Quiet>true</Quiet>" + "".join(f"<Object><Key>{k}</Key></Object>" for k in want[:1000]) + "</Delete>"
    r = C.post(b, body=body.encode(), query={"delete": ""})
    eq((r.status, len(r.xml())), (200, 0), "1,000 keys, quietly")
    body = "<Delete>" + "".join(f"<Object><Key>{k}</Key></Object>" for k in [*want[1000:], "never-there"]) + "</Delete>"
    r = C.post(b, body=body.encode(), query={"delete": ""})
    eq(sorted(r.texts("Deleted/Key")), sorted([*want[1000:], "never-there"]), "also a key that was not there")
    eq(C.keys(b), [])
    for bad in (b"<Delete/>", b"<Delete><Object/></Delete>", b"<Delete><Object><Key/></Object></Delete>", b"<X/>", b"", b"<Delete><Object><Key>a</Key>"):
        refused(C.post(b, body=bad, query={"delete": ""}), 400, "MalformedXML", f"{bad}")
    eq(C.delete(b).status, 204)


@case
def buckets():
    pre = unique("lb")
    names = sorted(f"{pre}-{i}" for i in range(5))
    for n in names:
        eq(C.request("PUT", f"/{n}").status, 200)
    seen, token = [], None
    while True:
        r = C.request("GET", "/", {"prefix": pre, "max-buckets": "2", **({"continuation-token": token} if token else {})})
        seen += r.texts("Buckets/Bucket/Name")
        token = r.xml().findtext("ContinuationToken")
        if not token:
            break
    eq(seen, names)
    for bad in ("0", "10001", "x"):
        refused(C.request("GET", "/", {"max-buckets": bad}), 400, "InvalidArgument", bad)
    eq(C.request("GET", "/", {"bucket-region": "eu-mars-1"}).texts("Buckets/Bucket/Name"), [], "another region")
    refused(C.request("PUT", f"/{names[0]}"), 409, "BucketAlreadyOwnedByYou")
    for n in names:
        eq(C.delete(n).status, 204)
    refused(C.delete(names[0]), 404, "NoSuchBucket")
    eq(C.head(names[0]).status, 404)
    for bad in ("ab", "Upper", "under_score", "a..b", "-a-", "192.168.1.1", "x" * 64, "xn--abc"):
        refused(C.request("PUT", f"/{bad}"), 400, "InvalidBucketName", bad)
    loc = b"<CreateBucketConfiguration><LocationConstraint>eu-mars-1</LocationConstraint></CreateBucketConfiguration>"
    refused(C.request("PUT", f"/{names[0]}", body=loc), 400, "InvalidLocationConstraint")
    tags = b"<CreateBucketConfiguration><Tags><Tag><Key>a</Key><Value>1</Value></Tag></Tags></CreateBucketConfiguration>"
    eq(C.request("PUT", f"/{names[0]}", body=tags).status, 200, "with tags")
    eq(C.get(names[0], query={"tagging": ""}).texts("TagSet/Tag/Key"), ["a"])
    eq(C.head(names[0]).headers["x-amz-bucket-region"], C.region)
    eq(C.get(names[0], query={"location": ""}).status, 200)


@case
def regions():
    r = Client(region="eu-mars-1").get(B)
    refused(r, 400, "AuthorizationHeaderMalformed")
    eq(r.xml().findtext("Region"), C.region, "the right one is named")


main()
