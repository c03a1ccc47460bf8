import type { Address } from '#src/runtime/address.ts';
import { parseAllowedNames } from '#src/runtime/certificate-names.ts';
import type { WatchedTlsFiles } from '#src/runtime/tls-files.ts';
import { makeCertificates, watchOwner } from './csi-certificates.ts';
import { makeFolder } from './csi-folder.ts';
import { startTestGateway } from './csi-gateway.ts';
import { answerOk, CREATED_VOLUME, type RawDriver, startRawDriver } from './csi-raw-driver.ts';
import { until } from './until.ts';

export interface TlsGateway {
  /** With the certificates of all callers. */
  readonly folder: Awaited<ReturnType<typeof makeFolder>>;
  readonly driver: RawDriver;
  /** The gateway's own certificates. */
  readonly source: WatchedTlsFiles;
  /** Where it listens. */
  readonly addresses: readonly Address[];
  /** Where it listens on TCP. */
  readonly tcp: Extract<Address, { kind: 'tcp' }>;
  close(): Promise<void>;
}

/** Starts a gateway that sutler-jobs alone may call on TCP, and anybody at `gw.sock` of its folder,
 * before a driver that creates volumes. Resolves when it is ready. */
export async function startTlsGateway(): Promise<TlsGateway> {
  const folder = await makeFolder();
  await makeCertificates(folder.path);
  const driver = await startRawDriver(
    folder.file('csi.sock'),
    (call) => call.path.endsWith('/CreateVolume') && answerOk(call, CREATED_VOLUME),
  );
  const source = await watchOwner(folder.path, 'gateway');
  const { address, addresses, gateway, close } = await startTestGateway(folder, {
    listen: [
      { kind: 'tcp', host: '127.0.0.1', port: 0 },
      { kind: 'unix', path: folder.file('gw.sock') },
    ],
    tls: { source, allowedNames: parseAllowedNames(['sutler-jobs']) },
  });
  if (address.kind !== 'tcp') throw new Error('it does not listen on TCP');
  await until(() => gateway.trouble === undefined, 'ready');
  return {
    folder,
    driver,
    source,
    addresses,
    tcp: address,
    close: async () => {
      await close();
      source.close();
      await driver.close();
      await folder.remove();
    },
  };
}
