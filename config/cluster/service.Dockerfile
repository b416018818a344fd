FROM python:3.11-slim
COPY . /srv/persistence
RUN pip install --no-cache-dir '/srv/persistence[postgresql,s3]' \
    && useradd --system --home-dir /var/lib/persistence --create-home persistence
USER persistence
