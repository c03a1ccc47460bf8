import { rename, writeFile } from 'node:fs/promises';
import type { Claim } from '#src/kube/objects.ts';
import { classes } from '#src/kube/resources.ts';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { ClusterBed, openParts } from './cluster-bed.ts';
import { makeFolder } from './csi-folder.ts';
import { startTestGateway } from './csi-gateway.ts';

/** A driver of the bed, with its gateway and a class of its name. */
export interface BedDriver {
  readonly name: string;
  /** For the key `gateway`. */
  readonly gateway: string;
  readonly driver: SampleDriver;
  /** Ends driver and gateway. */
  close(): Promise<void>;
}

/** A bed with any number of sample drivers, and one ingest and one jobs for all of them, which read
 * one --driver-config. */
export class DriverBed extends ClusterBed {
  readonly file = this.folder.file('drivers.yaml');
  #serial = 0;

  static async open(): Promise<DriverBed> {
    const parts = await openParts();
    const config = `--driver-config=${parts.folder.file('drivers.yaml')}`;
    return new DriverBed(parts, { flags: [config, '--timeout=1s', '--settle-time=100ms'] });
  }

  /** Starts a driver and its gateway, and creates its class. */
  async addDriver(name: string, o: { readonly answersAs?: string } = {}): Promise<BedDriver> {
    const folder = await makeFolder();
    const driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('volumes'),
      name: o.answersAs ?? name,
    });
    const listen = { kind: 'unix', path: folder.file('gateway.sock') } as const;
    const gateway = await startTestGateway(folder, { listen, probeTimeoutMs: 5000 });
    let closing: Promise<void> | undefined;
    const end = async (): Promise<void> => {
      await gateway.close();
      await driver.close();
      await folder.remove();
    };
    const close = (): Promise<void> => (closing ??= end());
    this.closers.add(name, close);
    const known = await this.kube.get(classes, { name });
    if (known === undefined) await this.createClass(name, { provisioner: name });
    return { name, gateway: `unix://${listen.path}`, driver, close };
  }

  /** Writes the file as an editor does: another file, which then takes its place. */
  async write(text: string): Promise<void> {
    await writeFile(`${this.file}.new`, text);
    await rename(`${this.file}.new`, this.file);
  }

  /** Writes a section for each of these drivers. */
  async serve(drivers: readonly BedDriver[], keys: readonly string[] = []): Promise<void> {
    const sections = drivers.flatMap(({ name, gateway }) => [
      `  ${name}:`,
      `    gateway: ${gateway}`,
      ...keys.map((key) => `    ${key}`),
    ]);
    await this.write(['drivers:', ...sections, ''].join('\n'));
  }

  /** Creates a claim of the driver's class. */
  newClaim(driver: string): Promise<Claim> {
    return this.createClaimOf(`claim-${(this.#serial += 1)}`, { storageClassName: driver });
  }
}
