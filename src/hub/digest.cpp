#include "hub/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/check.h"

namespace millrace {

void FileDigest::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

FileDigest::FileDigest(Kind kind, uint64_t size) {
  if (kind == Kind::none) return;
  context_.reset(EVP_MD_CTX_new());
  CHECK(context_ != nullptr &&
            EVP_DigestInit_ex(context_.get(), kind == Kind::sha256 ? EVP_sha256() : EVP_sha1(), nullptr) == 1,
        "OpenSSL has no digest");
  if (kind == Kind::git) {
    const std::string head = fmt::format("blob {}", size);
    add(std::as_bytes(std::span(head.c_str(), head.size() + 1)));
  }
}

void FileDigest::add(std::span<const std::byte> bytes) {
  if (context_ != nullptr) CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "digest");
}

std::string FileDigest::hex() {
  if (context_ == nullptr) return "";
  unsigned char value[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  CHECK(EVP_DigestFinal_ex(context_.get(), value, &size) == 1, "digest");
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", value[i]);
  return text;
}

}  // namespace millrace
