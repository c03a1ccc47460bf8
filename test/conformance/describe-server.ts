import { after, before, describe } from 'node:test';
import { Connection, type ApiServerUnderTest } from './connection.ts';

/** A suite on a server of its own: opened before the first test, closed after the last. */
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
