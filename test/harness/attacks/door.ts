import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { parseAddress } from '#src/runtime/address.ts';
import { Closers } from '#src/runtime/closers.ts';
import type { TlsMaterial } from '#src/runtime/tls-files.ts';
import { type CertificateOwner, makeCertificates, tlsFilesOf } from '../csi-certificates.ts';
import { makeFolder } from '../csi-folder.ts';
import { answerOk, CREATED_VOLUME, type RawDriver, startRawDriver } from '../csi-raw-driver.ts';
import { GatewayProcess } from '../gateway-process.ts';
import type { AttackTarget } from './stranger.ts';

/** How strangers come to the gateway.
 * - tls: with a certificate of the authority but a name that is not allowed, each from an address
 *   of its own.
 * - tls, same address: the same, from the address of the allowed caller.
 * - plaintext: from this machine, as the allowed caller. */
export type DoorKind = 'tls' | 'tls, same address' | 'plaintext';

/** A gateway's process in front of a driver that answers at once. */
export interface Door {
  readonly kind: DoorKind;
  readonly gateway: GatewayProcess;
  readonly driver: RawDriver;
  /** What strangers come with: the certificate of audit, which is not allowed. */
  readonly target: AttackTarget;
  /** With what allowed callers come; undefined where the door is plaintext. */
  readonly callerTls: TlsMaterial | undefined;
  /** Ends everything. */
  readonly closers: Closers;
}

/** Starts one.
 * @param flags  further flags of the gateway */
export async function openDoor(kind: DoorKind, flags: readonly string[] = []): Promise<Door> {
  const closers = new Closers();
  const folder = await makeFolder();
  closers.add('folder', () => folder.remove());
  const driver = await startRawDriver(folder.file('csi.sock'), (call) => {
    if (call.path.endsWith('/CreateVolume')) return answerOk(call, CREATED_VOLUME);
    return call.path.endsWith('/DeleteVolume') && answerOk(call, new Uint8Array());
  });
  closers.add('driver', () => driver.close());
  const isTls = kind !== 'plaintext';
  if (isTls) await makeCertificates(folder.path, 'IP:127.0.0.1');
  const gateway = await GatewayProcess.start([
    `--csi-address=${folder.file('csi.sock')}`,
    '--listen=dns:///127.0.0.1:0',
    '--http-endpoint=127.0.0.1:0',
    ...(isTls ? tlsFlags(folder.path) : []),
    ...flags,
  ]);
  closers.add('gateway', () => gateway.stop());
  const address = parseAddress('gateway', gateway.address);
  if (address.kind !== 'tcp') throw new Error(gateway.address);
  const tls = isTls ? await readMaterial(folder.path, 'audit') : undefined;
  const target = { host: address.host, port: address.port, tls };
  const callerTls = isTls ? await readMaterial(folder.path, 'jobs') : undefined;
  return { kind, gateway, driver, target, callerTls, closers };
}

function tlsFlags(folder: string): readonly string[] {
  const { ca, cert, key } = tlsFilesOf(folder, 'gateway');
  return [
    `--tls-cert=${cert}`,
    `--tls-key=${key}`,
    `--tls-client-ca=${ca}`,
    '--tls-allowed-names=DNS:sutler-ingest,DNS:sutler-jobs',
  ];
}

async function readMaterial(folder: string, owner: CertificateOwner): Promise<TlsMaterial> {
  const files = tlsFilesOf(folder, owner);
  const [ca, cert, key] = await Promise.all([
    readFile(files.ca, 'utf8'),
    readFile(files.cert, 'utf8'),
    readFile(files.key, 'utf8'),
  ]);
  return { ca, cert, key, notAfterMs: Date.parse(new X509Certificate(cert).validTo) };
}
