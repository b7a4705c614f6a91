export AWS_ACCESS_KEY_ID=minioadmin AWS_SECRET_ACCESS_KEY=minioadmin AWS_DEFAULT_REGION=us-east-1
export AWS_ENDPOINT_URL=http://127.0.0.1:9000
aws s3 mb s3://photos
aws s3 cp README.md s3://photos/readme.txt
aws s3 ls s3://photos
