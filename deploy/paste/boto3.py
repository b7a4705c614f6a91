import boto3

s3 = boto3.client("s3", endpoint_url="http://127.0.0.1:9000", region_name="us-east-1",
                  aws_access_key_id="minioadmin", aws_secret_access_key="minioadmin")
s3.create_bucket(Bucket="notes")
s3.put_object(Bucket="notes", Key="hello.txt", Body=b"hello, lake")
print(s3.get_object(Bucket="notes", Key="hello.txt")["Body"].read())
