import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DEFAULT_ACCESS, type RedisAccess } from '#src/redis/access.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { watchTlsFiles } from '#src/runtime/tls-files.ts';
import { freePort } from './free-port.ts';
import { type Authority, createAuthority, type Pair } from './kube-certificates.ts';
import { startTestRedis, type TestRedis } from './redis.ts';

/** A Redis that also listens with TLS, and its authority. */
export interface TlsRedis {
  readonly folder: string;
  readonly redis: TestRedis;
  readonly authority: Authority;
  /** The certificate of the server, for localhost and 127.0.0.1. */
  readonly server: Pair;
  readonly tlsPort: number;
  readonly password: string;
  readonly closers: Closers;
  /** URL of its TLS port. */
  url(host?: string): string;
  /** Access with files that are read again every 20 ms. */
  access(files: Partial<Record<'ca' | 'cert' | 'key', string>>): Promise<RedisAccess>;
  close(): Promise<void>;
}

/** @param o.asksForCertificate  whether a client needs a certificate */
export async function startTlsRedis(
  o: { readonly asksForCertificate?: boolean } = {},
): Promise<TlsRedis> {
  const closers = new Closers();
  const folder = await mkdtemp(join(tmpdir(), 'sutler-redis-tls-'));
  closers.add('folder', () => rm(folder, { recursive: true, force: true }));
  const authority = createAuthority(folder, 'redis');
  const server = authority.server('localhost');
  const tlsPort = await freePort();
  const redis = await startTestRedis({
    settings: [
      // The certificate does not name the second address.
      'bind 127.0.0.1 127.0.0.2',
      `tls-port ${tlsPort}`,
      ...serverTls(authority, server),
      `tls-auth-clients ${o.asksForCertificate === true ? 'yes' : 'no'}`,
    ],
  });
  closers.add('Redis', () => redis.close());
  const { password } = new URL(redis.url);
  return {
    folder,
    redis,
    authority,
    server,
    tlsPort,
    password,
    closers,
    url: (host = '127.0.0.1') => `rediss://:${password}@${host}:${tlsPort}`,
    async access({ ca = '', cert = '', key = '' }) {
      const files = await watchTlsFiles({
        files: {
          ca: { flag: 'redis-tls-ca', path: ca },
          cert: { flag: 'redis-tls-cert', path: cert },
          key: { flag: 'redis-tls-key', path: key },
        },
        log: silentLog,
        intervalMs: 20,
      });
      closers.add('TLS files', () => files.close());
      return { ...DEFAULT_ACCESS, files };
    },
    close: async () => void (await closers.close()),
  };
}

/** The lines of the configuration of a server, or a Sentinel, that name its certificate. */
export function serverTls({ caFile }: Authority, server: Pair): readonly string[] {
  return [
    `tls-ca-cert-file ${caFile}`,
    `tls-cert-file ${server.certFile}`,
    `tls-key-file ${server.keyFile}`,
  ];
}
