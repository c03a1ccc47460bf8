import { after, before, describe } from 'node:test';
import { Connection, type ApiServerUnderTest } from './connection.ts';

/** Runs a suite on a server that is opened before the first test and closed after the last. */
export function describeServer(
  title: string,
  open: () => Promise<ApiServerUnderTest>,
  suite: (api: () => Connection) => void,
): void {
  describe(title, { concurrency: 8 }, () => {
    let server: ApiServerUnderTest;
    let connection: Connection;
    before(async () => {
      server = await open();
      connection = new Connection(server);
    });
    after(async () => {
      await connection.close();
      await server.close();
    });
    suite(() => connection);
  });
}
