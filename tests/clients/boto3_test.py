# SPDX-License-Identifier: Apache-2.0
"""boto3: the README's lines, then uploads of all kinds, conditions under a race, paging, object lock."""
import concurrent.futures
import contextlib
import io
import random

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

from steps import ACCESS, ENDPOINT, REGION, SECRET, main, paste, same, step, unique


def connect(secret=SECRET):
    return boto3.client("s3", endpoint_url=ENDPOINT, region_name=REGION, aws_access_key_id=ACCESS, aws_secret_access_key=secret,
                        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, max_pool_connections=32))


S3 = connect()
BUCKET = unique("boto")


def code(call):
    try:
        call()
    except ClientError as e:
        return e.response["Error"]["Code"]
    return None


@step
def pasted_lines():
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(paste("boto3.py"), {"__name__": "pasted"})
    same(out.getvalue().strip(), "b'hello, lake'", "what it prints")
    S3.delete_object(Bucket="notes", Key="hello.txt")
    S3.delete_bucket(Bucket="notes")


@step
def sizes_round_trip():
    S3.create_bucket(Bucket=BUCKET)
    source = random.Random(3)
    for size in (0, 1, 4096, 16385, 262144, 1048576, 3 * 1048576 + 7):
        data = source.randbytes(size)
        S3.put_object(Bucket=BUCKET, Key=f"size/{size}", Body=data, Metadata={"size": str(size)})
        got = S3.get_object(Bucket=BUCKET, Key=f"size/{size}")
        same(got["Body"].read() == data, True, f"{size} bytes come back")
        same(got["Metadata"], {"size": str(size)}, "metadata")


@step
def multipart_with_checksums():
    data = random.Random(4).randbytes(17 * 1048576 + 5)
    S3.upload_fileobj(io.BytesIO(data), BUCKET, "multi", Config=TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20),
                      ExtraArgs={"ChecksumAlgorithm": "CRC32"})
    out = io.BytesIO()
    S3.download_fileobj(BUCKET, "multi", out)
    same(out.getvalue() == data, True, "the bytes")
    part = S3.get_object(Bucket=BUCKET, Key="multi", PartNumber=2)
    same(part["Body"].read() == data[5 << 20:10 << 20], True, "part 2")
    same(part["PartsCount"], 4, "number of parts")


@step
def paging():
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: S3.put_object(Bucket=BUCKET, Key=f"page/{i % 5}/{i:04}"), range(250)))
    keys = [o["Key"] for page in S3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="page/", PaginationConfig={"PageSize": 33}) for o in page["Contents"]]
    same(keys, sorted(f"page/{i % 5}/{i:04}" for i in range(250)), "keys in order")
    folded = [p["Prefix"] for page in S3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="page/", Delimiter="/", PaginationConfig={"PageSize": 2})
              for p in page["CommonPrefixes"]]
    same(folded, [f"page/{i}/" for i in range(5)], "common prefixes")


@step
def one_winner():
    def attempt(i):
        return code(lambda: S3.put_object(Bucket=BUCKET, Key="once", Body=str(i).encode(), IfNoneMatch="*"))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        got = list(pool.map(attempt, range(32)))
    same(got.count(None), 1, f"winners among {sorted({str(g) for g in got})}")
    same(set(got) <= {None, "PreconditionFailed", "ConditionalRequestConflict"}, True, f"answers {set(got)}")
    etag = S3.head_object(Bucket=BUCKET, Key="once")["ETag"]
    S3.put_object(Bucket=BUCKET, Key="once", Body=b"swapped", IfMatch=etag)
    same(code(lambda: S3.put_object(Bucket=BUCKET, Key="once", Body=b"late", IfMatch=etag)), "PreconditionFailed", "an old ETag")


@step
def copy_tags_delete():
    S3.put_object(Bucket=BUCKET, Key="a b+c%/ü", Body=b"odd", Tagging="k=v&x=y")
    S3.copy_object(Bucket=BUCKET, Key="copy", CopySource={"Bucket": BUCKET, "Key": "a b+c%/ü"})
    same(S3.get_object(Bucket=BUCKET, Key="copy")["Body"].read(), b"odd", "copied")
    tags = {t["Key"]: t["Value"] for t in S3.get_object_tagging(Bucket=BUCKET, Key="copy")["TagSet"]}
    same(tags, {"k": "v", "x": "y"}, "tags")
    gone = S3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "copy"}, {"Key": "a b+c%/ü"}, {"Key": "never"}]})
    same(len(gone["Deleted"]), 3, "deleted")
    same(code(lambda: S3.get_object(Bucket=BUCKET, Key="copy")), "NoSuchKey", "after the delete")


@step
def object_lock():
    b = unique("lock")
    S3.create_bucket(Bucket=b, ObjectLockEnabledForBucket=True)
    v = S3.put_object(Bucket=b, Key="k", Body=b"kept", ObjectLockLegalHoldStatus="ON")["VersionId"]
    same(code(lambda: S3.delete_object(Bucket=b, Key="k", VersionId=v)), "AccessDenied", "a held version")
    S3.put_object_legal_hold(Bucket=b, Key="k", VersionId=v, LegalHold={"Status": "OFF"})
    S3.delete_object(Bucket=b, Key="k", VersionId=v)
    S3.delete_bucket(Bucket=b)


@step
def refusals():
    same(code(lambda: connect("wrong").list_buckets()), "SignatureDoesNotMatch", "wrong secret")
    same(code(lambda: S3.list_objects_v2(Bucket=unique("absent"))), "NoSuchBucket", "absent bucket")
    same(code(lambda: S3.delete_bucket(Bucket=BUCKET)), "BucketNotEmpty", "a bucket with objects")


main()
