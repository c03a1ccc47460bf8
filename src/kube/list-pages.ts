import type { KubeClient, ListOptions } from './client.ts';
import type { Resource } from './resources.ts';

const PAGE_SIZE = 500;

/** Lists a collection in pages, so that a large one is never in memory as a whole.
 * @throws KubeError */
export async function* listPages<T>(
  client: Pick<KubeClient, 'list'>,
  resource: Resource,
  options: Pick<ListOptions, 'namespace' | 'signal'> = {},
): AsyncGenerator<readonly T[]> {
  let continueToken: string | undefined;
  do {
    const page = await client.list<T>(resource, {
      ...options,
      limit: PAGE_SIZE,
      ...(continueToken === undefined ? {} : { continueToken }),
    });
    yield page.items;
    ({ continueToken } = page);
  } while (continueToken !== undefined);
}
